/** The schema, step by step. A step, once released, is never changed: a mistake is mended by the next one. */

export const migrations: readonly string[] = [
  `
  CREATE TABLE plants (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    tag  TEXT
  ) STRICT;

  CREATE TABLE tokens (
    hash            TEXT PRIMARY KEY,
    prefix          TEXT NOT NULL,
    name            TEXT NOT NULL,
    scopes          TEXT NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    last_used_at_ms INTEGER,
    revoked_at_ms   INTEGER
  ) STRICT, WITHOUT ROWID;

  CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at_ms IS NULL;

  CREATE TABLE probe (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    probed_at_ms INTEGER NOT NULL
  ) STRICT;
  `,

  `
  CREATE INDEX plants_tag ON plants (tag) WHERE tag IS NOT NULL;
  `,
];
