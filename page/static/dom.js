// Elements and words. Nothing here makes HTML of a string: all text of the cluster becomes text nodes.

const SVG = "http://www.w3.org/2000/svg"

/** h("td.num", { title: "…" }, "text", child, …): attributes that are null or false are left out. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".")
  const made = document.createElement(tag)
  if (classes.length) made.className = classes.join(" ")
  set(made, attributes)
  made.append(...children.flat().filter(child => child != null && child !== false))
  return made
}

export function s(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag)
  set(made, attributes)
  made.append(...children)
  return made
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else if (value == null || value === false) element.removeAttribute(name)
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value)
  }
  return element
}

/** Set text only where it differs: selections and screen readers are left alone. */
export function say(element, text) {
  const wanted = text == null ? "" : String(text)
  if (element.textContent !== wanted) element.textContent = wanted
  return element
}

export function width(element, share) {
  element.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`
  return element
}

export function show(element, shown) {
  element.hidden = !shown
  return element
}

/** Keep the children of a parent equal to items, in their order; those that stay are updated in place. */
export function keyed(parent, items, key, make, update) {
  const known = parent.known ??= new Map()
  const wanted = new Set(items.map(key))
  for (const [name, row] of known) if (!wanted.has(name)) { row.element.remove(); known.delete(name) }
  let before = null
  for (const item of items) {
    const name = key(item)
    let row = known.get(name)
    if (!row) known.set(name, row = make(item))
    update(row, item)
    const next = before ? before.nextSibling : parent.firstChild
    if (next !== row.element) parent.insertBefore(row.element, next)
    before = row.element
  }
}

// words

export const NONE = "–"

export function number(value, digits = 3) {
  if (value == null) return NONE
  const size = Math.abs(value)
  if (size >= 1e9) return trim(value / 1e9, digits) + " G"
  if (size >= 1e6) return trim(value / 1e6, digits) + " M"
  if (size >= 1e4) return trim(value / 1e3, digits) + " k"
  return size >= 100 ? Math.round(value).toLocaleString("en") : trim(value, digits)
}

const trim = (value, digits) => {
  const whole = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1)
  return value.toFixed(Math.max(0, digits - whole)).replace(/\.?0+$/, text => text.startsWith(".") ? "" : text)
}

/** 1 worker, 2 workers. */
export const many = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`
export const whole = value => value == null ? NONE : Math.round(value).toLocaleString("en")
export const percent = (value, digits = 1) => value == null ? NONE : `${(100 * value).toFixed(digits)} %`

export function bytes(value) {
  if (value == null) return NONE
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (value >= size) return `${trim(value / size, 3)} ${unit}`
  return `${value} B`
}

export function duration(seconds) {
  if (seconds == null) return NONE
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  if (seconds < 120) return `${Math.round(seconds)} s`
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`
}

/** A span of time in one unit, for ages: "40 s", "5 min", "3 h", "2 d". */
export function age(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= (unit === "min" ? size : 2 * size)) return `${Math.floor(seconds / size)} ${unit}`
  return `${Math.max(0, Math.floor(seconds))} s`
}

export const clock = at => at == null ? NONE
  : new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })
export const date = at => at == null ? "" : new Date(at * 1000).toLocaleString("en-GB")

/** What is used of what there is, in one unit. */
export function room(name, used, has) {
  if (name !== "memory") return `${number(used)} / ${number(has)}`
  const [whole, unit] = bytes(has).split(" "), size = unit === "TiB" ? 2 ** 40 : unit === "GiB" ? 2 ** 30 : 2 ** 20
  return `${number(used / size)} / ${number(has / size)} ${unit}`
}

export const PHASES = {
  Running: "●", Scaling: "⇅", Restarting: "↻", Pending: "◌", Created: "○", Suspended: "‖", Succeeded: "✓", Failed: "✕",
  "In trouble": "!", Superseded: "↷", Terminating: "⊘",
}

export function badge(phase) { return phased(h("span.badge"), phase) }

/** Shape, word and colour say the same: none of them alone. */
export function phased(element, phase) {
  if (element.dataset.phase === phase) return element
  element.dataset.phase = phase
  element.replaceChildren(h("span", { "aria-hidden": "true" }, PHASES[phase] ?? "•"), ` ${phase}`)
  return element
}
