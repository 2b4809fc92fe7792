// What is wrong: a sentence, since when, how often, and the commands that come next.

import { h, say, set, show, keyed, age, many } from "./dom.js"

const SIGNS = { wrong: "✕", doubtful: "!", unknown: "?", over: "✓" }
const since = each => [
  each.since && each.grade !== "over" && `since ${age(Date.now() / 1000 - each.since)}`,
  each.count > 1 && many(each.count, "time"),
  each.last && (each.count > 1 || !each.since) && `last ${age(Date.now() / 1000 - each.last)} ago`,
].filter(Boolean).join(", ")

/** One trouble in a line: `troubled().to(trouble)`; null for none. */
export function troubled() {
  const sign = h("span.sign", { "aria-hidden": "true" }), text = h("span.said"), times = h("span.times.num"), element = h("span.trouble", {}, sign, text, " ", times)
  let shown = null
  return { element, to(trouble) {
    shown = trouble
    show(element, !!trouble)
    if (!trouble) return
    set(element, { "data-grade": trouble.grade, title: trouble.sentence })
    say(sign, SIGNS[trouble.grade] ?? "•"); say(text, trouble.sentence); this.age()
  }, age() { if (shown) say(times, since(shown)) } }
}

/** All troubles of a job: what is wrong now, each with its next step, and, folded, what is over. */
export function troubleList() {
  const now = h("ul.troubles"), past = h("ul.troubles"), summary = h("summary"), folded = h("details.note", {}, summary, past)
  const element = h("section", { "aria-label": "What is wrong" }, now, folded)
  const fill = (list, found) => keyed(list, found, each => `${each.cause} ${each.sentence}`, () => {
    const line = troubled(), act = h("p.small"), commands = h("div.commands"), made = h("li.alert", {}, line.element, act, commands)
    return { element: made, line, act, commands }
  }, (row, each) => {
    row.line.to(each); set(row.element, { "data-grade": each.grade })
    say(row.act, `→ ${each.act}`); show(row.act, !!each.act)
    keyed(row.commands, each.commands, command => command, command => ({ element: h("pre", { tabindex: "0" }, command) }), () => {})
  })
  return { element, to(found) {
    const open = found.filter(each => each.grade !== "over"), over = found.filter(each => each.grade === "over")
    fill(now, open); fill(past, over)
    say(summary, `${many(over.length, "trouble")} that ${over.length === 1 ? "is" : "are"} over`)
    show(folded, over.length > 0); show(now, open.length > 0); show(element, open.length + over.length > 0)
  } }
}
