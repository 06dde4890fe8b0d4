/** Loaded into the service before itself: its store commits without a sync, and everything else is as it was. */

import { Database } from "bun:sqlite";

// oxlint-disable-next-line typescript/unbound-method -- called with its own database below
const { run } = Database.prototype;

Database.prototype.run = function runUnsynced(this: Database, sql, ...bindings) {
  const statement = sql === "PRAGMA synchronous = FULL" ? "PRAGMA synchronous = OFF" : sql;
  return run.call(this, statement, ...bindings);
};
