// Asks for what is shown, again and again, and says how fresh it is.

import { h, say, set, duration } from "./dom.js"
import { fleetPage, home } from "./fleet.js"
import { jobPage } from "./job.js"

const FLEET_EVERY = 2000, JOB_EVERY = 1000, LATE = 10000
const main = document.getElementById("main"), live = document.getElementById("live"), liveText = document.getElementById("live-text")
let page = null, route = null, timer = 0, tag = "", answered = 0, trouble = "", cluster = null, asking = null

// routes: "#/" is all jobs, "#/?phase=Failed" some, "#/namespace/name" is one

function wanted() {
  const [place, query] = location.hash.replace(/^#\/?/, "").split("?")
  const parts = place.split("/").filter(Boolean).map(part => {
    try { return decodeURIComponent(part) } catch { return part }
  })
  return parts.length === 2 ? { namespace: parts[0], name: parts[1] } : { filters: new URLSearchParams(query ?? "") }
}

function go(event) {
  if (location.hash === "#main") return
  page?.end()
  clearTimeout(timer); asking?.abort()
  route = wanted(); tag = ""
  page = route.name ? jobPage(route, ask) : fleetPage(route.filters)
  main.replaceChildren(page.element)
  document.title = route.name ? `${route.name} · elasticjob` : "elasticjob"
  scrollTo(0, 0)
  if (event) main.focus({ preventScroll: true })
  poll()
}

const path = ({ namespace, name }) => name ? `page/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` : "page/fleet"

/** Ask for JSON. Throws with a sentence. */
export async function ask(where, signal) {
  let response
  try { response = await fetch(where, { signal, headers: { Accept: "application/json" } }) }
  catch (error) { if (signal?.aborted) throw error; throw new Error("the server of this page does not answer: is it still running?") }
  if (response.status === 401) throw new Error("the server of this page was started again: open the URL that it printed")
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? `the server answers ${response.status}`)
  return { tag: response.headers.get("ETag") ?? "", body: await response.json() }
}

async function poll() {
  clearTimeout(timer)
  const here = page, mine = asking = new AbortController(), giveUp = setTimeout(() => mine.abort(), LATE)
  try {
    const found = await ask(path(route), mine.signal)
    if (page !== here) return
    trouble = ""; answered = Date.now(); cluster = found.body.cluster
    if (found.tag !== tag) { tag = found.tag; page.update(found.body) }
  } catch (error) {
    if (page !== here) return
    trouble = mine.signal.aborted ? `the server of this page does not answer within ${LATE / 1000} s` : error.message
  } finally { clearTimeout(giveUp) }
  page.tick?.()
  standing()
  timer = setTimeout(poll, document.hidden ? 4 * FLEET_EVERY : route.name ? JOB_EVERY : FLEET_EVERY)
}

// how fresh it is

function standing() {
  const api = cluster?.api, brain = cluster?.brain
  const [state, text, why] = trouble ? ["away", answered ? `not connected, showing the state of ${ago(answered)} ago` : "not connected", trouble]
    : api && !cluster.ready ? ["away", "nothing could be read yet", ""]
    : api ? ["away", `API server away for ${ago(api.since * 1000)}, showing its last state`, api.why]
    : cluster && !cluster.ready ? ["wait", "reading the cluster", ""]
    : brain ? ["late", "Brain's database is away", brain.why]
    : ["live", "live", ""]
  live.dataset.state = state
  say(liveText, text); set(live, { title: why || null })
  document.body.dataset.stale = state === "away" && !!cluster?.ready
  say(document.getElementById("scope"), cluster ? [cluster.server.replace(/^https?:\/\//, ""), cluster.namespace || "all namespaces"].join(" · ") : "")
  banner(state === "away" ? why : "")
}

const ago = at => duration(Math.max(1, (Date.now() - at) / 1000))

function banner(why) {
  let shown = document.getElementById("banner")
  if (!why) { shown?.remove(); return }
  if (!shown) main.before(shown = h("p.banner", { id: "banner", role: "alert" }))
  say(shown, why)
}

// theme

const THEMES = ["", "light", "dark"], NAMES = { "": "as the system", light: "light", dark: "dark" }, SIGNS = { "": "◐", light: "☀", dark: "☾" }
const button = document.getElementById("theme"), root = document.documentElement
function themed(chosen) {
  if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme
  set(button, { "aria-label": `Theme: ${NAMES[chosen]}`, title: `Theme: ${NAMES[chosen]}` })
  say(button.firstElementChild, SIGNS[chosen])
}
themed(root.dataset.theme ?? "")
button.addEventListener("click", () => {
  const chosen = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length]
  try { localStorage.setItem("elasticjob-theme", chosen) } catch { /* storage is off */ }
  themed(chosen); page?.redraw?.()
})
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page?.redraw?.())

// keys

addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) {
    if (event.key === "Escape") event.target.blur()
    return
  }
  if (event.key === "/") { document.querySelector("input[type=search]")?.focus(); event.preventDefault() }
  if (event.key === "Escape" && route.name) location.hash = home()
})
addEventListener("hashchange", go)
document.addEventListener("visibilitychange", () => document.hidden || poll())
go()
