// Bars and small curves: how much of something there is, and where time went.

import { h, s, set, say, width, keyed, duration, percent, NONE } from "./dom.js"
import { colour, inOrder, meaning } from "./causes.js"

/** A bar with a word: `bar.to(share, text, title)`. */
export function bar(kind = "") {
  const fill = h("span.fill"), text = h("span.said"), element = h(`span.meter${kind && "." + kind}`, {}, h("span.track", {}, fill), text)
  return { element, to(share, words, title) {
    width(fill, share); say(text, words); element.firstChild.hidden = words === NONE; set(element, { title })
    fill.dataset.full = share > 0.9
    return element
  } }
}

/** A curve of the last values. */
export function spark(wide = 96, high = 24) {
  const line = s("path", { class: "spark-line" }), area = s("path", { class: "spark-area" })
  const element = s("svg", { class: "spark", viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true" }, area, line)
  return { element, to(values) {
    const found = values.map((value, at) => [at, value]).filter(([, value]) => value != null)
    const most = Math.max(...found.map(([, value]) => value), 1e-9)
    const x = at => (wide - 2) * at / Math.max(1, values.length - 1) + 1, y = value => high - 2 - (high - 4) * value / most
    let d = "", last = null
    for (const [at, value] of found) { d += `${last === at - 1 ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`; last = at }
    set(line, { d: found.length > 1 ? d : "" })
    const whole = found.length > 1 && found.at(-1)[0] - found[0][0] === found.length - 1
    set(area, { d: whole ? `${d}L${x(last).toFixed(1)} ${high}L${x(found[0][0]).toFixed(1)} ${high}Z` : "" })
    return element
  } }
}

/** Seconds by cause: a bar in parts, and a list that says each part in words. */
export function spent(empty) {
  const parts = h("div.parts", { role: "img" }), list = h("ul.legend"), none = h("p.muted", {}, empty)
  const element = h("div.spent", {}, parts, list, none)
  return { element, to(found) {
    const causes = inOrder(found), total = causes.reduce((all, [, seconds]) => all + seconds, 0)
    none.hidden = total > 0; parts.hidden = list.hidden = !total
    set(parts, { "aria-label": causes.map(([cause, seconds]) => `${cause} ${percent(seconds / total)}`).join(", ") })
    keyed(parts, causes, ([cause]) => cause, ([cause]) => {
      const part = h("span.part"); part.style.background = colour(cause); return { element: part }
    }, (row, [cause, seconds]) => { width(row.element, seconds / total); set(row.element, { title: `${cause}: ${duration(seconds)}` }) })
    const sorted = [...causes].sort((a, b) => b[1] - a[1])
    keyed(list, sorted, ([cause]) => cause, ([cause]) => {
      const dot = h("span.swatch"), share = h("span.num"), time = h("span.num.muted")
      dot.style.background = colour(cause)
      return { element: h("li", { title: meaning(cause) }, dot, h("span.cause", {}, cause), share, time), share, time }
    }, (row, [, seconds]) => { say(row.share, percent(seconds / total)); say(row.time, duration(seconds)) })
    return element
  } }
}
