// All jobs, where their workers' time was lost, and the nodes.

import { h, say, set, show, keyed, number, whole, many, percent, duration, phased, date, room, width, NONE } from "./dom.js"
import { bar, spark, spent } from "./bars.js"

export const linkTo = job => `#/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`

export function fleetPage() {
  const tiles = h("section.tiles", { "aria-label": "All jobs together" })
  const lost = spent("No worker has lost time yet.")
  const search = h("input", { type: "search", placeholder: "Filter: name, namespace, phase, reason   /", "aria-label": "Filter jobs", oninput: () => draw() })
  const chips = h("div.chips", { role: "group", "aria-label": "Phases" })
  const heads = COLUMNS.map(([name, by, kind]) => h(`th${kind ? "." + kind : ""}`, { scope: "col", "aria-sort": "none" },
    by ? h("button.sort", { type: "button", onclick: () => sort(name) }, name) : name))
  const rows = h("tbody"), count = h("p.muted.count", { "aria-live": "polite" })
  const table = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Jobs" }, h("table.jobs", {}, h("thead", {}, h("tr", {}, ...heads)), rows))
  const empty = h("div.empty"), nodes = h("div.nodes"), nodesSay = h("p.muted")
  const lostCard = h("section.card", {}, h("h2", {}, "Workers' time that was lost, by cause"), lost.element)
  const jobsCard = h("section.card", {}, h("div.head", {}, h("h2", {}, "Jobs"), chips, search), table, count)
  const nodesCard = h("section.card", {}, h("h2", {}, "Nodes"), h("p.muted.hint", {}, "What pods of jobs request, of what each node has."), nodes, nodesSay)
  const element = h("div.page", {}, tiles, empty, lostCard, jobsCard, nodesCard)
  let seen = null, phase = "", order = { name: "", down: false }

  function sort(name) {
    order = { name, down: order.name === name ? !order.down : false }
    heads.forEach((head, at) => set(head, { "aria-sort": COLUMNS[at][0] !== name ? "none" : order.down ? "descending" : "ascending" }))
    draw()
  }
  function chosen() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
    const found = seen.jobs.filter(job => (!phase || job.phase === phase)
      && words.every(word => `${job.namespace}/${job.name} ${job.phase} ${job.reason} ${job.message}`.toLowerCase().includes(word)))
    const by = COLUMNS.find(([name]) => name === order.name)?.[1]
    if (!by) return found
    const sign = order.down ? -1 : 1
    return [...found].sort((a, b) => { const [x, y] = [by(a), by(b)]
      return x == null ? 1 : y == null ? -1 : sign * (typeof x === "string" ? x.localeCompare(y) : x - y) })
  }
  function draw() {
    if (!seen) return
    const found = chosen()
    keyed(rows, found, job => job.uid, row, (made, job) => made.to(job))
    const all = seen.jobs.length, more = seen.more ? `, and ${seen.more} older ones that are not shown` : ""
    say(count, found.length === all ? (all ? `${many(all, "job")}${more}` : "") : `${found.length} of ${all} jobs${more}`)
  }
  return {
    element, end() {}, tick() { for (const each of rows.known?.values() ?? []) each.age() },
    update(found) {
      seen = found
      const some = found.jobs.length > 0
      for (const card of [tiles, jobsCard]) show(card, some)
      show(lostCard, some && Object.keys(found.spent).length > 0)
      show(empty, !some)
      if (!some) empty.replaceChildren(...nothing(found.cluster))
      sums(tiles, found)
      lost.to(found.spent)
      const phases = Object.entries(counts(found.jobs))
      if (phase && !phases.some(([name]) => name === phase)) phase = ""
      keyed(chips, phases, ([name]) => name, ([name]) => {
        const text = h("span"), number = h("span.num")
        const made = h("button.chip", { type: "button", onclick: () => { phase = phase === name ? "" : name; pressed(chips, phase); draw() } }, text, number)
        made.dataset.name = name; phased(text, name)
        return { element: made, number }
      }, (made, [, many]) => say(made.number, many))
      pressed(chips, phase)
      draw()
      show(nodesCard, found.nodes.rows.length > 0 || found.nodes.away !== "")
      keyed(nodes, found.nodes.rows, node => node.name, nodeCard, (made, node) => made.to(node))
      say(nodesSay, found.nodes.away ? `Nodes are not shown: ${found.nodes.away}` : found.nodes.more ? `and ${many(found.nodes.more, "more node")}` : "")
    },
  }
}

const pressed = (chips, phase) => { for (const chip of chips.children) set(chip, { "aria-pressed": String(chip.dataset.name === phase) }) }
const counts = jobs => jobs.reduce((all, job) => ({ ...all, [job.phase]: (all[job.phase] ?? 0) + 1 }), {})

function nothing(cluster) {
  if (!cluster.ready) return [h("h2", {}, cluster.api ? "The API server does not answer yet" : "Reading the cluster…"), cluster.api && h("p", {}, cluster.api.why)].filter(Boolean)
  const where = cluster.namespace ? `namespace ${cluster.namespace}` : "this cluster"
  return [
    h("h2", {}, `No jobs in ${where} yet`),
    h("p", {}, "Start one, and it appears here within seconds:"),
    h("pre", {}, "elasticjob submit train.py --workers 1:4 --image IMAGE\nkubectl apply -f examples/digits/job.yaml"),
    h("p.muted", {}, "On a laptop without a cluster: elasticjob devcluster --operator -- bash"),
  ]
}

// sums

function sums(tiles, { sums: all }) {
  const made = tiles.made ??= {
    going: tile("Active jobs"), world: tile("Workers training"), samples: tile("Samples per second"),
    goodput: tile("Goodput, mean"), trouble: tile("Need attention"),
  }
  if (!tiles.children.length) tiles.append(...Object.values(made).map(each => each.element))
  made.going.to(all.going, Object.entries(all.phases).map(([phase, many]) => `${many} ${phase.toLowerCase()}`).join(", "))
  made.world.to(whole(all.world), `${all.active} of ${all.desired} pods run`)
  made.samples.to(number(all.samples || null), "all jobs together")
  made.goodput.to(percent(all.goodput), "of the workers' time")
  made.trouble.to(all.trouble, all.trouble ? "their rows say why" : "all is well")
  made.trouble.element.dataset.bad = all.trouble > 0
}

export function tile(label) {
  const value = h("dd.num"), note = h("p"), element = h("div.tile", {}, h("dt", {}, label), value, note)
  return { element, to(text, words = "") { say(value, text); say(note, words); set(element, { title: words || null }) } }
}

// a row

const COLUMNS = [
  ["Job", job => `${job.namespace}/${job.name}`], ["Phase", job => job.phase], ["Workers", job => job.active ?? null],
  ["Speed", job => job.samples ?? job.steps ?? null], ["Goodput", job => job.goodput], ["Progress", job => job.progress],
  ["Restarts", job => job.restarts, "right"], ["Age", job => job.began, "right"],
]

function row() {
  const link = h("a"), space = h("span.muted.small"), phase = h("span.badge"), why = h("span.why")
  const workers = bar(), curve = spark(), speed = h("span.num"), goodput = bar(), progress = bar(), restarts = h("td.num.right"), age = h("td.num.right.muted")
  const element = h("tr", {}, h("th", { scope: "row" }, link, space), h("td", {}, phase, why), h("td", {}, workers.element),
    h("td", {}, h("span.speed", {}, curve.element, speed)), h("td", {}, goodput.element), h("td", {}, progress.element), restarts, age)
  let shown = null
  return { element, to(job) {
    shown = job
    say(link, job.name); set(link, { href: linkTo(job) }); say(space, job.namespace)
    phased(phase, job.phase)
    const over = job.phase === "Succeeded", reason = job.deleted ? "deleted" : over ? "" : job.reason
    say(why, reason && job.message && !job.message.startsWith(reason) ? `${reason}: ${job.message}` : reason); set(why, { title: job.message || null })
    const most = job.most ?? job.desired
    workers.to(over ? 1 : job.desired ? job.active / job.desired : 0, job.workers || (job.desired != null ? `${job.active}/${job.desired}` : NONE),
      most ? `${job.active} of ${job.desired} run; ${job.least} to ${most} allowed` : null)
    curve.to(job.spark ?? [])
    say(speed, job.samples ? `${number(job.samples)}/s` : job.steps ? `${number(job.steps)} steps/s` : NONE)
    goodput.to(job.goodput, percent(job.goodput, 0), "share of the workers' time in steps that count")
    progress.to(job.phase === "Succeeded" ? 1 : job.progress, job.progress != null || over ? percent(over ? 1 : job.progress, 0) : job.step ? `step ${whole(job.step)}` : NONE,
      job.eta ? `ends ${date(job.eta)}` : null)
    say(restarts, job.restarts ?? NONE)
    this.age()
  }, age() { say(age, shown?.began ? duration(Math.max(0, (shown.ended ?? Date.now() / 1000) - shown.began)) : NONE) } }
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
