// All jobs, those in trouble first; where their workers' time was lost; and the nodes.

import { h, say, set, show, keyed, number, whole, many, percent, age, phased, date, room, NONE } from "./dom.js"
import { bar, spark, spent } from "./bars.js"
import { troubled } from "./troubles.js"

const FIRST = 60  // rows until more are asked for
export const linkTo = job => `#/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`
let last = "#/"
/** Where all jobs are, with the filters that were chosen there. */
export const home = () => last

/** `chosen` are the filters of the URL's hash: ns, phase, trouble, q, by, down. */
export function fleetPage(chosen) {
  last = location.hash || "#/"
  const filters = { ns: "", phase: "", trouble: "", q: "", by: "", down: "", ...Object.fromEntries(chosen) }
  const tiles = h("section.tiles", { "aria-label": "All jobs together" })
  const lost = spent("No worker has lost time yet.")
  const search = h("input", { type: "search", value: filters.q, placeholder: "Name, phase, reason   /", "aria-label": "Filter jobs", oninput: () => choose({ q: search.value }) })
  const spaces = h("select", { "aria-label": "Namespace", onchange: () => choose({ ns: spaces.value }) })
  const chips = h("div.chips", { role: "group", "aria-label": "Phases" })
  const heads = COLUMNS.map(([name, by, kind]) => h(`span.${kind}`, { role: "columnheader", "aria-sort": "none" },
    h("button.sort", { type: "button", onclick: () => choose(filters.by !== name ? { by: name, down: "" } : filters.down ? { by: "", down: "" } : { down: "1" }) }, name)))
  const rows = h("div", { role: "rowgroup" }), count = h("p.muted.count", { "aria-live": "polite" })
  const more = h("button", { type: "button", onclick: () => { all = true; draw() } }, "Show all")
  const table = h("div.jobs", { role: "table", "aria-label": "Jobs" }, h("div", { role: "rowgroup" }, h("div.row.heads", { role: "row" }, ...heads)), rows)
  const empty = h("div.empty"), nodes = h("div.nodes"), nodesHead = h("summary"), nodesSay = h("p.muted")
  const lostCard = h("section.card", {}, h("h2", {}, "Workers' time that was lost, by cause"), lost.element)
  const jobsCard = h("section.card", {}, h("div.head", {}, h("h2", {}, "Jobs"), chips, spaces, search), table, h("div.below", {}, count, more))
  const nodesCard = h("details.card", {}, nodesHead, h("p.muted.hint", {}, "What pods of jobs request, of what each node has."), nodes, nodesSay)
  const element = h("div.page", {}, h("h1.hidden", {}, "All jobs"), tiles, empty, jobsCard, lostCard, nodesCard)
  let seen = null, all = false

  function choose(more) {
    Object.assign(filters, more)
    const told = new URLSearchParams(Object.entries(filters).filter(([, value]) => value)).toString()
    last = told ? `#/?${told}` : "#/"
    history.replaceState(null, "", last)
    draw()
  }
  function found() {
    const words = filters.q.toLowerCase().split(/\s+/).filter(Boolean)
    const jobs = seen.jobs.filter(job => (!filters.ns || job.namespace === filters.ns) && (!filters.phase || job.phase === filters.phase) && (!filters.trouble || job.trouble)
      && words.every(word => `${job.namespace}/${job.name} ${job.phase} ${job.reason} ${job.trouble?.sentence ?? job.message}`.toLowerCase().includes(word)))
    const by = COLUMNS.find(([name]) => name === filters.by)?.[1], sign = filters.down ? -1 : 1
    return !by ? jobs : [...jobs].sort((a, b) => { const [x, y] = [by(a), by(b)]
      return x == null ? 1 : y == null ? -1 : sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) })
  }
  function draw() {
    if (!seen) return
    const jobs = found(), shown = all ? jobs : jobs.slice(0, FIRST)
    keyed(rows, shown, job => job.uid, row, (made, job) => made.to(job))
    heads.forEach((head, at) => set(head, { "aria-sort": COLUMNS[at][0] !== filters.by ? "none" : filters.down ? "descending" : "ascending" }))
    for (const chip of chips.children) set(chip, { "aria-pressed": String(chip.dataset.name === (filters.trouble ? TROUBLE : filters.phase)) })
    const total = seen.jobs.length, left = seen.more ? `, and ${seen.more} older ones that are not shown` : ""
    say(count, !jobs.length ? "No job is like that. Take a filter away to see more."
      : `${shown.length < jobs.length ? `${shown.length} of ` : ""}${jobs.length === total ? many(total, "job") : `${jobs.length} of ${many(total, "job")}`}${left}`)
    show(more, shown.length < jobs.length)
  }
  function offer(jobs) {
    const names = [...new Set(jobs.map(job => job.namespace))].sort()
    if (filters.ns && !names.includes(filters.ns)) names.push(filters.ns)
    if (spaces.names !== names.join()) {
      spaces.names = names.join()
      spaces.replaceChildren(h("option", { value: "" }, "All namespaces"), ...names.map(name => h("option", { value: name }, name)))
      spaces.value = filters.ns
    }
    show(spaces, names.length > 1)
    const phases = jobs.reduce((all, job) => ({ ...all, [job.phase]: (all[job.phase] ?? 0) + 1 }), filters.phase ? { [filters.phase]: 0 } : {})
    keyed(chips, [[TROUBLE, jobs.filter(job => job.trouble).length], ...Object.entries(phases)], ([name]) => name, ([name]) => {
      const text = h("span"), number = h("span.num")
      const made = h("button.chip", { type: "button", onclick: () => choose(name === TROUBLE ? { trouble: filters.trouble ? "" : "1", phase: "" } : { phase: filters.phase === name ? "" : name, trouble: "" }) }, text, number)
      made.dataset.name = name; phased(text, name)
      return { element: made, number }
    }, (made, [, many]) => say(made.number, many))
  }
  return {
    element, end() {}, tick() { for (const each of rows.known?.values() ?? []) each.age() },
    update(answer) {
      seen = answer
      const some = answer.jobs.length > 0, { rows: machines, ready, away, more: others } = answer.nodes
      for (const card of [tiles, jobsCard]) show(card, some)
      show(lostCard, some && Object.keys(answer.spent).length > 0)
      show(empty, !some)
      if (!some) empty.replaceChildren(...nothing(answer.cluster))
      sums(tiles, answer)
      lost.to(answer.spent)
      offer(answer.jobs)
      draw()
      show(nodesCard, machines.length > 0 || away !== "")
      if (!nodesHead.textContent) nodesCard.open = machines.length <= 24 && innerWidth > 620
      say(nodesHead, away ? "Nodes" : `Nodes: ${ready} of ${machines.length + others} ready`)
      keyed(nodes, machines, node => node.name, nodeCard, (made, node) => made.to(node))
      say(nodesSay, away ? `Nodes are not shown: ${away}` : others ? `and ${many(others, "more node")}` : "")
    },
  }
}

const TROUBLE = "In trouble"

function nothing({ api, ready, namespace }) {
  if (api) return [h("h2", {}, api.why[0].toUpperCase() + api.why.slice(1)), api.act && h("p", {}, `→ ${api.act}`)].filter(Boolean)
  if (!ready) return [h("h2", {}, "Reading the cluster…")]
  return [
    h("h2", {}, `No jobs in ${namespace ? `namespace ${namespace}` : "this cluster"} yet`),
    h("p", {}, "Start one, and it appears here within seconds:"),
    h("pre", { tabindex: "0" }, "elasticjob submit train.py --workers 1:4 --image IMAGE\nkubectl apply -f examples/digits/job.yaml"),
    h("p.muted", {}, "On a laptop without a cluster: elasticjob devcluster --operator -- bash"),
  ]
}

// sums

function sums(tiles, { sums: all }) {
  const made = tiles.made ??= {
    trouble: tile("In trouble"), going: tile("Active jobs"), world: tile("Workers training"), samples: tile("Samples/s"), goodput: tile("Goodput, mean"),
  }
  if (!tiles.children.length) tiles.append(...Object.values(made).map(each => each.element))
  made.going.to(all.going, Object.entries(all.phases).map(([phase, many]) => `${many} ${phase.toLowerCase()}`).join(", "))
  made.world.to(whole(all.world), `${all.active} of ${all.desired} pods run`)
  made.samples.to(number(all.samples || null), "all jobs together")
  made.goodput.to(percent(all.goodput), "of the workers' time")
  made.trouble.to(all.trouble, all.trouble ? "first in the list below" : "all is well")
  made.trouble.element.dataset.bad = all.trouble > 0
}

export function tile(label) {
  const value = h("dd.num"), note = h("dd.note"), element = h("dl.tile", {}, h("dt", {}, label), value, note)
  return { element, to(text, words = "") { say(value, text); say(note, words); set(element, { title: words || null }) } }
}

// a row

const COLUMNS = [
  ["Job", job => `${job.namespace}/${job.name}`, "job"], ["Phase", job => job.phase, "phase"], ["Workers", job => job.active ?? null, "workers"],
  ["Speed", job => job.samples ?? job.steps ?? null, "speed"], ["Goodput", job => job.goodput, "goodput"], ["Progress", job => job.progress, "share"],
  ["Restarts", job => job.restarts, "restarts"], ["Age", job => job.began && -job.began, "age"],
]

function row() {
  const link = h("a"), space = h("span.muted.small"), phase = h("span.badge"), why = troubled(), note = h("span.muted.small.grow")
  const workers = bar(), curve = spark(), speed = h("span.num"), goodput = bar(), progress = bar(), restarts = h("span.num"), old = h("span.num.muted")
  const cell = (name, ...children) => h(`span.${name}`, { role: "cell" }, ...children), reason = cell("reason", why.element)
  const element = h("div.row", { role: "row" }, h("span.job", { role: "rowheader" }, link, space, note), cell("phase", phase), cell("workers", workers.element),
    cell("speed", curve.element, speed), cell("goodput", goodput.element), cell("share", progress.element), cell("restarts", restarts), cell("age", old), reason)
  let shown = null
  return { element, to(job) {
    shown = job
    say(link, job.name); set(link, { href: linkTo(job), title: job.name }); say(space, job.namespace)
    phased(phase, job.phase)
    const over = job.phase === "Succeeded", words = job.deleted ? "deleted" : over ? "" : job.reason && job.message
    why.to(job.trouble); say(note, job.trouble ? "" : words); set(note, { title: words || null }); show(reason, !!job.trouble)
    set(element, { "data-grade": job.trouble?.grade })
    const most = job.most ?? job.desired
    workers.to(over ? 1 : job.desired ? job.active / job.desired : 0, job.workers || (job.desired != null ? `${job.active}/${job.desired}` : NONE),
      most ? `${job.active} of ${job.desired} run; ${job.least} to ${most} allowed` : null)
    const fast = job.samples ?? job.steps
    curve.to(fast ? job.spark ?? [] : []); show(curve.element, !!fast)
    say(speed, job.samples ? `${number(job.samples)}/s` : job.steps ? `${number(job.steps)} steps/s` : NONE)
    goodput.to(job.goodput, percent(job.goodput, 0), "share of the workers' time in steps that count")
    progress.to(over ? 1 : job.progress, job.progress != null || over ? percent(over ? 1 : job.progress, 0) : job.step ? `step ${whole(job.step)}` : NONE,
      job.eta ? `ends ${date(job.eta)}` : null)
    say(restarts, job.restarts ?? NONE)
    this.age()
  }, age() {
    say(old, shown?.began ? age((shown.ended ?? Date.now() / 1000) - shown.began) : NONE); why.age()
    set(old, { title: shown?.began ? `${shown.ended ? "ran; began" : "began"} ${date(shown.began)}` : null })
  } }
}

function nodeCard() {
  const name = h("strong"), state = h("span.state"), pods = h("span.muted.small"), rooms = h("div.rooms")
  return { element: h("article.node", {}, h("header", {}, name, state), rooms, pods), to(node) {
    say(name, node.name); set(name, { title: node.name }); say(state, node.state); state.dataset.ready = node.ready
    say(pods, `${many(node.pods, "pod")} of jobs`)
    keyed(rooms, node.rooms, each => each.name, each => { const made = bar("wide"); return { element: h("div.room", { title: each.name }, h("span.small", {}, each.name.split("/").at(-1)), made.element), made } },
      (made, each) => made.made.to(each.has ? each.used / each.has : 0, room(each.name, each.used, each.has)))
  } }
}
