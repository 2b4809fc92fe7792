// One job: how fast, how large, where time went, what changed and why, its pods and their last lines.

import { h, say, set, show, keyed, number, whole, many, percent, bytes, duration, age, clock, date, phased, badge, width, NONE } from "./dom.js"
import { bar, spent } from "./bars.js"
import { timeline } from "./charts.js"
import { home, tile } from "./fleet.js"
import { troubleList } from "./troubles.js"

const LOG_EVERY = 3000, LEAST_RANGE = 120

export function jobPage(route, ask) {
  const title = h("h1", {}, route.name), phase = h("span.badge"), facts = h("p.muted"), sentence = h("p.sentence")
  const troubles = troubleList(), masterSays = h("p.note")
  const progress = h("div.progress"), fill = h("span.fill"), done = h("p.small.num"), left = h("p.small.num.muted")
  progress.append(h("div.track", {}, fill), h("div.ends", {}, done, left))
  const tiles = { speed: tile("Speed"), step: tile("Step time"), world: tile("World"), goodput: tile("Goodput"), restarts: tile("Restarts"), checkpoint: tile("Checkpoint") }
  const course = timeline(), kinds = h("div.chips", { role: "group", "aria-label": "Kinds of entries" },
    ...Object.keys(KINDS).map(name => h("button.chip", { type: "button", "aria-pressed": String(name === "All"), onclick: () => { kind = name; pick() } }, h("span", {}, name))))
  const time = spent("No time is accounted yet.")
  const happened = feed("Nothing is known yet: events of the last hour and changes of the world come here."), eventsSay = h("p.muted")
  const pods = podTable(), logs = logPane(route, ask)
  const past = feed("")
  const pastCard = card("Pods that are gone, and their last lines", past.element), cost = h("p.small.muted.gap")
  const body = h("div.body", { hidden: true }, troubles.element, masterSays, progress,
    h("section.tiles", { "aria-label": "Now" }, ...Object.values(tiles).map(each => each.element)),
    h("section.card", {}, h("div.head", {}, h("h2", {}, "What happened"), kinds), course.element, eventsSay, happened.element),
    card("Where the workers' time went", time.element, cost), card("Pods", pods.element), logs.element, pastCard)
  const missing = h("div.empty", {}), element = h("div.page", {},
    h("nav.crumbs", { "aria-label": "Breadcrumb" }, h("a", { href: home() }, "All jobs"), h("span.muted", {}, ` / ${route.namespace}`)),
    h("div.title", {}, title, phase), facts, sentence, missing, body)
  let seen = null, kind = "All"

  function draw(job) {
    phased(phase, job.phase); show(phase, true)
    say(facts, [job.namespace, job.strategy, job.mode && `optimizeMode ${job.mode}`, job.began && `began ${date(job.began)}`,
      job.began && `${job.ended ? "ran" : "runs"} ${duration((job.ended ?? Date.now() / 1000) - job.began)}`].filter(Boolean).join("  ·  "))
    say(sentence, job.sentence); show(sentence, !!job.sentence && !job.ended)
    troubles.to(job.troubles ?? [])
    const away = job.master?.away
    show(masterSays, !!away && job.master.expected)
    say(masterSays, away ? `The job's master cannot be asked for ${duration(Math.max(1, Date.now() / 1000 - away.since))}: ${away.why}. ` +
      (job.master.heard ? `Shown is what it said at ${clock(job.master.heard)}.` : "Shown is what the API server knows.") : "")
    ended(job)
    numbers(job)
    curves(job)
    time.to(job.spent ?? {}); say(cost, job.cost); show(cost, !!job.cost)
    pick()
    say(eventsSay, job.eventsAway); show(eventsSay, !!job.eventsAway)
    pods.to(job.pods ?? { rows: [], more: 0 }, pod => logs.open(pod))
    logs.offer(job.pods?.rows ?? [])
    show(pastCard, job.pastPods?.length > 0); past.to(job.pastPods ?? [], each => `${each.name} ${each.began}`, pastItem)
  }
  function pick() {
    for (const chip of kinds.children) set(chip, { "aria-pressed": String(chip.textContent === kind) })
    happened.to((seen?.happened ?? []).filter(KINDS[kind]), each => `${each.kind} ${each.at} ${each.title} ${each.text}`, entry)
  }
  function ended(job) {
    const over = job.phase === "Succeeded" ? 1 : job.progress ?? (job.totalSteps ? job.step / job.totalSteps : null)
    show(progress, job.step != null || over != null)
    width(fill, over); progress.dataset.phase = job.phase
    say(done, [job.step != null && `step ${whole(job.step)}${job.totalSteps ? ` of ${whole(job.totalSteps)}` : ""}`, job.epoch ? `epoch ${number(job.epoch)}` : "",
      job.loss != null && `loss ${number(job.loss, 4)}`, over != null && percent(over)].filter(Boolean).join("  ·  "))
    say(left, job.ended ? `ended ${date(job.ended)}` : job.eta ? `${duration(Math.max(0, job.eta - Date.now() / 1000))} left, until ${clock(job.eta)}` : "")
  }
  function numbers(job) {
    const still = job.ended ? "the job is over" : job.phase === "Suspended" ? "suspended" : "no step lately"
    tiles.speed.to(job.samples ? `${number(job.samples)}/s` : job.steps ? `${number(job.steps)}/s` : NONE, job.samples ? `samples; ${number(job.steps)} steps/s` : job.steps ? "steps" : still)
    tiles.step.to(duration(job.stepSeconds), job.stepSeconds ? "of one step to the next" : still)
    const roles = Object.entries(job.roles ?? {}).map(([role, each]) => `${role} ${each.active}/${each.desired}${each.most ? ` (${each.least}–${each.most})` : ""}`)
    tiles.world.to(job.world != null && !job.ended ? whole(job.world) : NONE, roles.join(", ") || "workers that train together")
    tiles.goodput.to(percent(job.goodput), job.standstill != null ? `${duration(job.standstill)} standstill in ${many(job.round, "round")}` : "of the workers' time")
    tiles.restarts.to(job.restarts ?? NONE, "pods made again")
    const kept = job.checkpoint
    tiles.checkpoint.to(kept ? whole(kept.stored || kept.memory) : NONE, kept ? kept.error || (kept.stored ? `step in storage, took ${duration(kept.seconds)}` : "step in memory of nodes") : "none yet")
    tiles.checkpoint.element.dataset.bad = !!kept?.error
  }
  function curves(job) {
    const { at = [], samples = [], steps = [], world: sizes = [] } = job.series ?? {}
    const some = at.length > 1, rounds = job.rounds ?? []
    show(course.element, some)
    if (!some) return
    const last = job.ended ? at.at(-1) : Math.max(at.at(-1), job.master?.heard ?? 0)
    const range = [Math.min(at[0], last - LEAST_RANGE), last]
    course.to({
      speed: [at, samples.some(Boolean) ? samples : steps], world: stepsOf(rounds, range, at, sizes), range,
      marks: job.happened.filter(each => each.label).reverse(), bands: rounds.filter(each => each.standstill).map(each => [each.at - each.standstill, each.at]),
    })
  }
  return {
    element, redraw() { course.redraw() },
    end() { course.end(); logs.end() },
    tick() { if (seen) draw(seen) },
    update(found) {
      if (found.missing && seen) {  // deleted while we look: what was seen last stays
        show(missing, true)
        missing.replaceChildren(h("h2", {}, "This job was deleted"), h("p", {}, "Below is what was seen last. ", h("a", { href: home() }, "All jobs")))
        return
      }
      show(missing, !!found.missing); show(body, !found.missing); show(phase, !found.missing)
      if (found.missing) {
        missing.replaceChildren(...(found.cluster.ready ? [h("h2", {}, "There is no such job"),
          h("p", {}, "It may have been deleted, or never created: "), h("pre", {}, `kubectl get elasticjobs -n ${route.namespace}`), h("p", {}, h("a", { href: home() }, "All jobs"))]
          : [h("h2", {}, "Reading the cluster…")]))
        return
      }
      seen = found; draw(found)
    },
  }
}

/** The world over time: of rounds, which are exact, where the master told them; else of what was seen. */
function stepsOf(rounds, [low, high], at, sizes) {
  if (!rounds.length) return [at, sizes]
  const x = [], y = []
  for (const each of rounds) if (each.at <= high) { x.push(each.at); y.push(each.workers) }
  const first = x.findLastIndex(time => time <= low)
  if (first > 0) { x.splice(0, first); y.splice(0, first) }
  if (x.length && x[0] < low) x[0] = low
  x.push(high); y.push(y.at(-1))
  return [x, y]
}

function card(name, ...children) { return h("section.card", {}, name && h("h2", {}, name), ...children) }

/** A list of what happened, newest first. */
function feed(empty) {
  const list = h("ol.feed", { tabindex: "0" }), none = h("p.muted", {}, empty), element = h("div", {}, list, none)
  return { element, to(items, key, make) {
    show(none, !items.length); show(list, items.length > 0)
    const seen = new Map()
    const named = items.map(item => { const name = String(key(item)), many = seen.get(name) ?? 0; seen.set(name, many + 1); return [`${name} ${many}`, item] })
    keyed(list, named, ([name]) => name, ([, item]) => ({ element: h("li"), said: null }), (row, [, item]) => {
      const text = JSON.stringify(item) + age(Date.now() / 1000 - (item.at ?? item.ended))
      if (row.said !== text) { row.said = text; row.element.replaceChildren(...make(item).filter(Boolean)) }
    })
  } }
}

const at = time => h("time.num.muted", { title: time == null ? "" : `${age(Date.now() / 1000 - time)} ago, ${date(time)}` }, clock(time), h("span", {}, time == null ? "" : `${age(Date.now() / 1000 - time)} ago`))
const KINDS = { All: () => true, Size: each => each.kind !== "event" || each.mark !== "life", Warnings: each => each.mark === "fault" }
const entry = each => [at(each.at), h("div", { "data-mark": each.mark }, h("p", {}, h("strong", {}, each.title), " ", each.phase && badge(each.phase),
  each.seconds != null && h("span.tag", {}, `${duration(each.seconds)}${each.kind === "world" ? " standstill" : ""}`), each.tags.map(tag => h("span.tag", {}, tag))),
  each.text && h("p.muted", {}, each.text))]
const pastItem = each => [at(each.ended), h("div", {}, h("p", {}, h("strong", {}, each.name), " ", badge(each.phase || "Unknown"), " ", each.reason && h("span.tag", {}, each.reason)),
  each.log && h("pre.log.short", { tabindex: "0" }, each.log))]

// pods

function podTable() {
  const rows = h("tbody"), more = h("p.muted")
  const heads = ["Pod", "State", "Node", "Step", "CPU", "Memory", "Restarts", "Age", ""].map(name => h(`th${["Restarts", "Age"].includes(name) ? ".right" : ""}`, { scope: "col" }, name || h("span.hidden", {}, "Log")))
  const element = h("div", {}, h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Pods" }, h("table.pods", {}, h("thead", {}, h("tr", {}, ...heads)), rows)), more)
  return { element, to(found, open) {
    keyed(rows, found.rows, pod => pod.uid, () => podRow(open), (row, pod) => row.to(pod))
    say(more, found.more ? `and ${many(found.more, "more pod")}` : found.rows.length ? "" : "No pods.")
  } }
}

function podRow(open) {
  const name = h("th", { scope: "row" }), phase = h("span.badge"), why = h("span.why"), node = h("td.node-name"), step = h("td.num"), cpu = bar(), memory = bar(), restarts = h("td.num.right"), old = h("td.num.right.muted")
  let shown = null
  const button = h("button.small", { type: "button", onclick: () => open(shown) }, "Log")
  const element = h("tr", {}, name, h("td", {}, phase, why), node, step, h("td", {}, cpu.element), h("td", {}, memory.element), restarts, old, h("td.right", {}, button))
  return { element, to(pod) {
    shown = pod
    say(name, pod.name); phased(phase, pod.phase)
    const doing = pod.phase === "Running" && pod.state && pod.state !== "running" ? pod.state : "", trouble = pod.reason || (pod.failure && `last failure: ${pod.failure}`)
    say(why, [doing, trouble].filter(Boolean).join(": ")); set(why, { title: trouble || null })
    say(node, pod.node || NONE)
    say(step, pod.stepSeconds ? duration(pod.stepSeconds) : NONE)
    cpu.to(pod.cpuLimit ? pod.cpu / pod.cpuLimit : 0, pod.cpu != null ? number(pod.cpu) + (pod.cpuLimit ? ` / ${number(pod.cpuLimit)}` : "") : NONE)
    memory.to(pod.memoryLimit ? pod.memory / pod.memoryLimit : 0, bytes(pod.memory), [pod.peak && `at most ${bytes(pod.peak)}`, pod.memoryLimit && `limit ${bytes(pod.memoryLimit)}`].filter(Boolean).join(", ") || null)
    say(restarts, Math.max(pod.restarts, pod.failures)); say(old, pod.began ? age(Date.now() / 1000 - pod.began) : NONE)
    set(button, { "aria-label": `Log of ${pod.name}` })
  } }
}

// the last lines of a pod

function logPane(route, ask) {
  const choice = h("select", { "aria-label": "Pod", onchange: () => chosen(choice.value) }), text = h("pre.log", { tabindex: "0", role: "region", "aria-label": "Last lines" }), note = h("p.muted.small")
  const element = h("section.card", {}, h("div.head", {}, h("h2", {}, "Last lines"), choice), text, note)
  let pod = "", timer = 0, picked = false, pods = []
  function chosen(name) { picked = true; change(name) }
  function change(name) { if (pod === name) return; pod = name; choice.value = name; text.textContent = ""; load() }
  async function load() {
    clearTimeout(timer)
    if (!pod) return
    const asked = pod
    try {
      const { body } = await ask(`page/logs/${encodeURIComponent(route.namespace)}/${encodeURIComponent(pod)}`)
      if (asked !== pod) return
      const follows = text.scrollHeight - text.scrollTop - text.clientHeight < 24
      say(text, body.text || (body.note ? "" : "(nothing yet)")); say(note, body.note); show(text, !body.note)
      if (follows) text.scrollTop = text.scrollHeight
    } catch (error) { if (asked === pod) say(note, error.message) }
    timer = setTimeout(load, document.hidden ? 4 * LOG_EVERY : LOG_EVERY)
  }
  return {
    element, end() { pod = ""; clearTimeout(timer) },
    open(shown) { chosen(shown.name); element.scrollIntoView({ behavior: "smooth", block: "center" }); text.focus({ preventScroll: true }) },
    offer(found) {
      const names = found.map(each => each.name)
      if (names.join() !== pods.join()) { pods = names; choice.replaceChildren(...names.map(name => h("option", { value: name }, name))); choice.value = pod }
      show(element, names.length > 0)
      if (picked && names.includes(pod)) return
      const first = found.find(each => each.role !== "master" && each.phase === "Running") ?? found.find(each => each.role !== "master") ?? found[0]
      if (!names.includes(pod)) change(first?.name ?? "")
    },
  }
}
