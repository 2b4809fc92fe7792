"""Rules: which are refused for their types and in which words, what functions give, what rules may cost."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import defined, definition, thing
from tests.conformance.probe import CRDS, THINGS, Probe, given, patch, post, probe

THING = f"{THINGS}/one"
Z = "x-kubernetes-validations"
BAD = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/bad/items/"
INTEGER = {"type": "integer"}
TEXT = {"type": "string", "maxLength": 60}
FIELDS = {
    "n": INTEGER,
    "m": INTEGER,
    "d": {"type": "number"},
    "t": {"type": "boolean"},
    "s": TEXT,
    "l": {"type": "array", "maxItems": 9, "items": INTEGER},
    "ls": {"type": "array", "maxItems": 9, "items": TEXT},
    "o": {"type": "object", "properties": {"a": INTEGER, "b": TEXT}},
    "map": {"type": "object", "maxProperties": 9, "additionalProperties": INTEGER},
    "q": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "span": {"type": "string", "format": "duration"},
    "day": {"type": "string", "format": "date"},
    "raw": {"type": "string", "format": "byte", "maxLength": 40},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "emb": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"spec": {"type": "object"}},
    },
    "for": TEXT,
    "a-b": TEXT,
}
SELF: dict[str, Any] = {
    "n": 3,
    "d": 2.5,
    "t": True,
    "s": "10.1.2.3",
    "l": [3, 1, 2],
    "ls": ["b", "a"],
    "o": {"a": 1, "b": "x"},
    "map": {"a": 1, "b": 2},
    "q": "50%",
    "when": "2024-02-29T13:14:15.5Z",
    "span": "1h30m",
    "day": "2024-03-01",
    "raw": "YWJj",
    "for": "a",
    "a-b": "b",
}


def ruled(*rules: Any, **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": FIELDS | fields,
        Z: [each if isinstance(each, dict) else {"rule": each} for each in rules],
    }


def compiled(name: str, *rules: Any, **more: Any) -> Probe:
    """A definition with such rules is stored, or refused."""
    entries = [{"rule": each, **more} if isinstance(each, str) else each for each in rules]
    return probe(
        f"compiled: {name}", post(CRDS, definition(ruled(*entries)), dryRun="All", show=("metadata.name",))
    )


def evaluated(name: str, *rules: Any) -> Probe:
    """An object is asked all of these rules, of which some break."""
    return probe(
        f"evaluated: {name}",
        *defined(ruled(*rules)),
        post(THINGS, thing("one", SELF), show=("metadata.name",)),
    )


def costly(name: str, rule: str, size: int, fields: int, **more: Any) -> Probe:
    """A rule about several lists of so many numbers, on each of them."""
    numbers = {"type": "array", "maxItems": size, "items": INTEGER, Z: [{"rule": rule, **more}]}
    spec = {"type": "object", "properties": {f"l{index}": numbers for index in range(fields)}}
    full = {f"l{index}": list(range(size)) for index in range(fields)}
    return probe(f"cost: {name}", *defined(spec), post(THINGS, thing("one", full), show=("metadata.name",)))


PROBES: tuple[Probe, ...] = (
    compiled(
        "fields", "self.none > 0", "has(self.none)", "has(self.o.c)", "self.n.x == 1", "self.any.x == 1"
    ),
    compiled("fields of elements", "self.l.all(x, x.a > 1)", "self.?o.?c.hasValue()", "self.emb.spec.x == 1"),
    compiled("escaped names", "self.__for__ == 'a' && self.a__dash__b == 'b'", "self.for == 'a'"),
    compiled("an embedded resource", "self.emb.metadata.name == 'a' && self.emb.kind == 'b'"),
    compiled("comparisons", "self.n == 'a'", "self.s < 1", "self.n > 1.5", "self.q > 1"),
    compiled("null", "self.n == null", "self.s != null", "self.l == null", "self.when == null"),
    compiled(
        "sums", "self.n + self.d > 1.0", "self.s + 1 == 'a'", "self.l + self.ls == []", "self.n * 'a' == 1"
    ),
    compiled(
        "logic", "self.n && self.t", "!self.n", "self.t ? 1 : 'a'", "self.n ? true : false", "-self.s == 'a'"
    ),
    compiled("results", "self.n", "self.s", "self.l", "self.?t", "dyn(self.t)", "optional.none()"),
    compiled("loops", "self.l.all(x, x)", "self.l.exists_one(x, x)", "self.l.map(x, x, x + 1).sum() > 1"),
    compiled(
        "loops over nothing", "self.n.all(x, x > 1)", "self.s.exists(x, x == 'a')", "self.map.all(k, k > 1)"
    ),
    compiled(
        "macros", "self.l.all(1, true)", "self.l.all(x)", "self.l.map(x, 1, 2, 3)", "has(self)", "has()"
    ),
    compiled("names", "foo", "foo(1)", "foo.bar(1)", "self.foo(1)", "self.l.exists(x, y)", "if > 1"),
    compiled("literals", "[1, 'a'] == []", "{'a': 1, 'b': 'c'}.size() > 1", "[1, self.q].size() > 1"),
    compiled("indexes", "self.l['a'] == 1", "self.map[1] == 1", "self.n[0] == 1", "self.map[?1].hasValue()"),
    compiled("membership", "self.s in self.l", "self.n in self.map", "self.s in self.s"),
    compiled("optionals", "self.?n == 3", "self.?n.orValue('a') == 'a'", "self.?n.or(self.?s).hasValue()"),
    compiled("moments", "self.when > '2020'", "self.span > 5", "self.when + self.when == self.when"),
    compiled("moments that are none", "self.when > timestamp('2020')", "self.span > duration('5x')"),
    compiled("numbers that are none", "self.n == 9223372036854775808", "int('x') == 1"),
    compiled("sizes", "size(self.n) == 1", "self.n.size() == 1", "self.s.size(1) == 2"),
    compiled("functions of texts", "self.s.startsWith(1)", "self.s.split(1) == []", "self.l.join() == ''"),
    compiled("functions of lists", "self.ls.sum() == 'a'", "self.l.indexOf('a') == 1"),
    compiled("conversions", "int(self.t) == 1", "double(self.t) > 1.0", "string(self.l) == ''"),
    compiled(
        "quantities", "quantity(self.n) == quantity('1')", "quantity('1') + quantity('1') == quantity('2')"
    ),
    compiled("addresses", "ip(self.s) == self.s", "cidr(self.s).containsIP(1)", "isCIDR(self.n)"),
    compiled("formats and versions", "format.named('uuid').validate(self.s)", "semver(1).major() == 1"),
    compiled("several lines", "self.n > 0 &&\n  self.none > 1 ||\n\tself.s", message="told"),
    compiled("letters of many bytes", "'äöü' + 1 == self.s", '"日本" == 1'),
    compiled("syntax", "self.n >", "(self.n > 1", "self.n > 1 1", "a b", "[1, 2", "self.n == 1 ? true"),
    compiled("what html escapes", "self.n > 0 && self.s < 1 && '<&>' == 1"),
    compiled("old values", {"rule": "oldSelf.n == 1", "optionalOldSelf": True}, "oldSelf.n == 'a'"),
    compiled(
        "messages",
        {"rule": "true", "messageExpression": "self.n"},
        {"rule": "true", "messageExpression": "self.none"},
        {"rule": "true", "messageExpression": "'n is ' + self.n"},
        {"rule": "true", "messageExpression": " "},
        {"rule": "self.none > 1", "messageExpression": "1"},
    ),
    compiled("words beside", {"rule": "true", "message": " "}, {"rule": "true", "fieldPath": " "}, " "),
    compiled("a line too many", "self.n > 0 &&\nself.n < 9"),
    evaluated(
        "numbers",
        "self.n / 2 == 1 && -7 / 2 == -3 && -7 % 3 == -1 && self.d / 2.0 == 1.25",
        "string(1e6) == '1e+06' && string(1.0) == '1' && int(self.d) == 2 && uint(self.n) == 3u",
        "self.d == 2.5 && type(self.d) == double && self.n < 3.5",
        "self.n + 9223372036854775807 > 1",
        "self.n / (self.n - 3) == 1",
        "self.n % (self.n - 3) == 1",
        "-self.n - 9223372036854775807 < 0",
    ),
    evaluated(
        "texts",
        "self.s.split('.') == ['10', '1', '2', '3'] && self.s.split('.', 2)[1] == '1.2.3'",
        (
            "self.s.replace('.', '-', 1) == '10-1.2.3' && self.s.substring(3, 4) == '1' && "
            "self.s.charAt(0) == '1'"
        ),
        "'ÄB'.lowerAscii() == 'Äb' && ' a '.trim() == 'a' && self.ls.join('+') == 'b+a'",
        "self.s.indexOf('.', 3) == 4 && self.s.lastIndexOf('.') == 6 && self.s.find('[0-9]+') == '10'",
        "self.s.findAll('[0-9]', 2) == ['1', '0']",
        "'%s: %d, %.1f'.format([self.s, self.n, self.d]) == '10.1.2.3: 3, 2.5'",
        "strings.quote('a\"') == '\"a\\\\\"\"'",
        "self.s.substring(9) == ''",
        "self.s.charAt(-1) == ''",
        "int(self.s) == 1",
    ),
    evaluated(
        "lists",
        "self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3 && !self.l.isSorted()",
        "self.l.indexOf(2) == 2 && self.l.sort() == [1, 2, 3] && self.l.reverse() == [2, 1, 3]",
        (
            "self.l.slice(1, 3) == [1, 2] && [self.l].flatten() == self.l && "
            "(self.l + self.l).distinct() == self.l"
        ),
        "lists.range(3) == [0, 1, 2] && self.l.first().value() == 3 && self.l.last() == optional.of(2)",
        "sets.contains(self.l, [1]) && sets.equivalent(self.l, [1, 2, 3]) && !sets.intersects(self.l, [9])",
        "self.l.filter(x, x > 1).map(x, x * 2) == [6, 4] && self.l.exists_one(x, x == 1)",
        "self.l[5] == 1",
        "self.l[-1] == 1",
        "self.l.slice(self.l[1], 0) == []",
        "self.l.filter(x, x > 9).min() == 1",
    ),
    evaluated(
        "moments",
        "self.when > timestamp('2024-01-01T00:00:00Z') && self.when + self.span > self.when",
        "self.span == duration('90m') && self.span.getMinutes() == 90 && string(self.span) == '5400s'",
        "self.when.getFullYear() == 2024 && self.when.getMonth() == 1 && self.when.getDate() == 29",
        (
            "self.when.getDayOfWeek() == 4 && self.when.getHours('+02:00') == 15 && "
            "self.when.getMilliseconds() == 500"
        ),
        "self.day.getDayOfYear() == 60 && self.raw == b'abc' && string(self.raw) == 'abc'",
        "self.when - timestamp('2024-02-29T13:14:15Z') == duration('500ms')",
        "self.when.getHours('Nowhere/Else') == 1",
        "duration(self.s) == self.span",
    ),
    evaluated(
        "quantities",
        "quantity('1Gi').asInteger() == 1073741824 && quantity('1000m') == quantity('1')",
        "quantity('1').add(1).sub(quantity('500m')).compareTo(quantity('1.5')) == 0",
        "quantity('1Ki').isGreaterThan(quantity('1k')) && quantity('1k').isLessThan(quantity('1Ki'))",
        "sign(quantity('-3')) == -1 && quantity('100m').asApproximateFloat() == 0.1 && !isQuantity('1gi')",
        "quantity('1500m').asInteger() == 1",
        "quantity(self.s) == quantity('1')",
    ),
    evaluated(
        "addresses",
        "ip(self.s).family() == 4 && cidr('10.0.0.0/8').containsIP(self.s) && ip.isCanonical('::1')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8')",
        "!isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4') && !isCIDR('10.0.0.0/33') && isCIDR('10.0.0.1/8')",
        "ip('127.0.0.1').isLoopback() && ip('::').isUnspecified() && ip('fe80::1').isLinkLocalUnicast()",
        "url('https://a.b:80/c%20d?k=v&k=w').getQuery()['k'] == ['v', 'w'] && url('/a').getHost() == ''",
        "url('https://[::1]:80/c').getHostname() == '::1' && url('https://a.b:80/c').getPort() == '80'",
        "isURL('https://a/b') && !isURL('rel') && !isURL('http://a b')",
        "ip(self.ls[0]) == ip('::1')",
        "cidr(self.s) == cidr('10.0.0.0/8')",
    ),
    evaluated(
        "formats and versions",
        "!format.dns1123Label().validate('a').hasValue() && format.uuid().validate('x').hasValue()",
        "!format.named('date').value().validate('2024-01-01').hasValue()",
        "semver('1.2.3-alpha.2').isLessThan(semver('1.2.3-alpha.10')) && semver('v1.2', true).minor() == 2",
        "!isSemver('v1.2.3') && isSemver('01.02', true) && semver('1.2.3+a') == semver('1.2.3+b')",
        {"rule": "false", "messageExpression": "format.dns1123Label().validate('a.b').value()[0]"},
        {"rule": "false", "messageExpression": "format.qualifiedName().validate('/b').value()[0]"},
        {"rule": "false", "messageExpression": "format.labelValue().validate('-').value()[0]"},
        "semver(self.ls[0]) == semver('1.2.3')",
    ),
    evaluated(
        "optionals and missing fields",
        (
            "self.?o.?a.orValue(9) == 1 && self.?m.orValue(9) == 9 && "
            "self.map[?'z'].or(self.map[?'a']).value() == 1"
        ),
        "!has(self.m) && has(self.o.a) && self.?emb.hasValue() == false",
        "self.m > 1",
        "self.map['z'] > 1",
        "self.?m.value() > 1",
        {"rule": "self.m > 1", "message": " with a message "},
    ),
    evaluated(
        "what is dynamic", "self.q == '50%'", "self.q > 1", "dyn(self.n).size() > 1", "self.q + 1 == 2"
    ),
    evaluated(
        "errors beside a verdict", "self.m > 1 || self.t", "self.m > 1 && !self.t", "self.m > 1 || !self.t"
    ),
    costly("one rule within its limit", "self.all(a, self.all(b, a + b >= 0))", 300, 1),
    costly("one rule beyond its limit", "self.all(a, self.all(b, a + b >= 0))", 800, 1),
    costly(
        "one rule beyond its limit, with a message",
        "self.all(a, self.all(b, a + b >= 0))",
        800,
        1,
        message="told",
    ),
    costly(
        "a message beyond its limit",
        "self.size() == 0",
        800,
        1,
        messageExpression="self.all(a, self.all(b, a + b >= 0)) ? 'a' : 'b'",
    ),
    probe(
        "an unchanged list is not asked again",
        *defined(ruled("true", bad={"type": "array", "maxItems": 5, "items": INTEGER})),
        *given(
            post(THINGS, thing("one", {"bad": [0, 5]})),
            patch(
                "json",
                f"{CRDS}/things.{{group}}",
                [
                    {
                        "op": "add",
                        "path": BAD + Z,
                        "value": [{"rule": "self > 1"}],
                    }
                ],
            ),
        ),
        post(THINGS, thing("probe", {"bad": [0]}), dryRun="All", until=422),
        patch("merge", THING, {"spec": {"n": 1}}, show=("spec",)),
        patch("merge", THING, {"spec": {"bad": [0]}}, show=("spec",)),
    ),
)
