CREATE TABLE IF NOT EXISTS plantstore_schema (
  id           int PRIMARY KEY CHECK (id = 1),
  version      int NOT NULL,
  locked_by    text,
  locked_until timestamptz
);

INSERT INTO plantstore_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;

CREATE TABLE IF NOT EXISTS plants (
  id   bigint PRIMARY KEY,
  name text NOT NULL,
  tag  text COLLATE "C"
);

UPDATE plantstore_schema SET version = 1 WHERE id = 1;

CREATE INDEX IF NOT EXISTS plants_tag ON plants (left(tag, 100), id) WHERE tag IS NOT NULL;

UPDATE plantstore_schema SET version = 2 WHERE id = 1;

CREATE TABLE IF NOT EXISTS plantstore_tokens (
  hash            text COLLATE "C" PRIMARY KEY,
  prefix          text NOT NULL,
  name            text COLLATE "C" NOT NULL,
  scopes          text NOT NULL,
  created_at_ms   bigint NOT NULL,
  expires_at_ms   bigint,
  last_used_at_ms bigint,
  revoked_at_ms   bigint
);

UPDATE plantstore_schema SET version = 3 WHERE id = 1;

CREATE UNIQUE INDEX IF NOT EXISTS plantstore_tokens_name ON plantstore_tokens (name)
  WHERE revoked_at_ms IS NULL;

UPDATE plantstore_schema SET version = 4 WHERE id = 1;

CREATE TABLE IF NOT EXISTS plantstore_marks (
  name  text COLLATE "C" PRIMARY KEY,
  at_ms bigint NOT NULL
);

UPDATE plantstore_schema SET version = 5 WHERE id = 1;

CREATE TABLE IF NOT EXISTS plantstore_notes (
  key     uuid PRIMARY KEY,
  ids     text,
  made_at timestamptz NOT NULL
);

UPDATE plantstore_schema SET version = 6 WHERE id = 1;

ALTER TABLE plantstore_tokens ADD COLUMN IF NOT EXISTS rate text;

UPDATE plantstore_schema SET version = 7 WHERE id = 1;

CREATE TABLE IF NOT EXISTS plantstore_changes (
  last    bigint,
  length  int NOT NULL,
  lsn     bigint NOT NULL,
  at_us   bigint NOT NULL,
  entries text NOT NULL,
  kept    text
);

UPDATE plantstore_schema SET version = 8 WHERE id = 1;

CREATE INDEX IF NOT EXISTS plantstore_changes_order ON plantstore_changes (last, lsn);

UPDATE plantstore_schema SET version = 9 WHERE id = 1;

WITH mark AS (
  INSERT INTO plantstore_marks (name, at_ms)
  VALUES ('changes', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  ON CONFLICT (name) DO NOTHING RETURNING at_ms
)
INSERT INTO plantstore_changes (last, length, lsn, at_us, entries)
SELECT at_ms, 0, 0, at_ms, '[]' FROM mark;

UPDATE plantstore_schema SET version = 10 WHERE id = 1;

CREATE TABLE IF NOT EXISTS plantstore_webhooks (
  name    text COLLATE "C" PRIMARY KEY,
  version text NOT NULL,
  record  text NOT NULL
);

UPDATE plantstore_schema SET version = 11 WHERE id = 1;
