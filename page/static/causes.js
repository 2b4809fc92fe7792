// Where the workers' time goes: names, sentences and colours of the causes, in the order in which they are drawn.

export const CAUSES = {
  productive: ["steps that count", "--c-productive"],
  rendezvous: ["waits for the others", "--c-rendezvous"],
  resize: ["the world changes as planned", "--c-resize"],
  init: ["agent and process start", "--c-init"],
  schedule: ["waits for a machine", "--c-schedule"],
  pull: ["images and volumes", "--c-pull"],
  data: ["waits for data", "--c-data"],
  checkpoint: ["copies or writes state", "--c-checkpoint"],
  recompute: ["steps made again", "--c-recompute"],
  straggler: ["waits for a slow worker", "--c-straggler"],
  hang: ["waits for a worker that hangs", "--c-hang"],
  drain: ["its machine goes", "--c-drain"],
}

const known = Object.keys(CAUSES)

export const colour = cause => `var(${CAUSES[cause]?.[1] ?? "--c-other"})`
export const meaning = cause => CAUSES[cause]?.[0] ?? ""
export const inOrder = spent => Object.entries(spent).sort(([a], [b]) => place(a) - place(b))
const place = cause => known.includes(cause) ? known.indexOf(cause) : known.length
