import type { Job } from "../../src/domain/job.ts";

/** A job that runs, as its service has stored it. */
export const makeJob = (version: string): Job => ({
  name: "b",
  kind: "remove",
  by: "till",
  digest: "",
  startedAtMs: 0,
  state: "running",
  report: { plants: 1, batch: "b", complete: false },
  left: [],
  version,
});
