/**
 * The schema, step by step, each step one statement that may be run twice. A step, once released, is never
 * changed: a mistake is mended by the next one. Only SQL that the engines of PostgreSQL's protocol share.
 */

export const migrations: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS plants (
  id   bigint PRIMARY KEY,
  name text NOT NULL,
  tag  text COLLATE "C"
)`,

  // By the beginning of the tag, because an entry of an index has to fit on its page, and with the id, so
  // that the plants of a tag are found in their order. In bytes ("C"): no change of a locale spoils it.
  `CREATE INDEX IF NOT EXISTS plants_tag ON plants (left(tag, 100), id) WHERE tag IS NOT NULL`,

  `CREATE TABLE IF NOT EXISTS plantstore_tokens (
  hash            text COLLATE "C" PRIMARY KEY,
  prefix          text NOT NULL,
  name            text COLLATE "C" NOT NULL,
  scopes          text NOT NULL,
  created_at_ms   bigint NOT NULL,
  expires_at_ms   bigint,
  last_used_at_ms bigint,
  revoked_at_ms   bigint
)`,

  `CREATE UNIQUE INDEX IF NOT EXISTS plantstore_tokens_name ON plantstore_tokens (name)
  WHERE revoked_at_ms IS NULL`,

  // What has happened last, or ever: a probe, the making of the first token.
  `CREATE TABLE IF NOT EXISTS plantstore_marks (
  name  text COLLATE "C" PRIMARY KEY,
  at_ms bigint NOT NULL
)`,

  // What each batch has done, for as long as somebody may have to ask.
  `CREATE TABLE IF NOT EXISTS plantstore_notes (
  key     uuid PRIMARY KEY,
  ids     text,
  made_at timestamptz NOT NULL
)`,
];

/** The version that the database has, and who is changing it. A table serves as the lock on every engine. */
export const CREATE_SCHEMA = `CREATE TABLE IF NOT EXISTS plantstore_schema (
  id           int PRIMARY KEY CHECK (id = 1),
  version      int NOT NULL,
  locked_by    text,
  locked_until timestamptz
)`;

export const FIRST_VERSION =
  "INSERT INTO plantstore_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING";
