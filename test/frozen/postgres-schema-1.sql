CREATE TABLE IF NOT EXISTS plantstore_version (
  id      int PRIMARY KEY CHECK (id = 1),
  version int NOT NULL
);

INSERT INTO plantstore_version (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;

CREATE TABLE IF NOT EXISTS plants (
  id   bigint PRIMARY KEY,
  name text NOT NULL,
  tag  text COLLATE "C"
);

CREATE INDEX IF NOT EXISTS plants_tag ON plants (left(tag, 100), id) WHERE tag IS NOT NULL;

CREATE TABLE IF NOT EXISTS plantstore_tokens (
  hash            text COLLATE "C" PRIMARY KEY,
  prefix          text NOT NULL,
  name            text COLLATE "C" NOT NULL,
  scopes          text NOT NULL,
  rate            text,
  created_at_ms   bigint NOT NULL,
  expires_at_ms   bigint,
  last_used_at_ms bigint,
  revoked_at_ms   bigint
);

CREATE UNIQUE INDEX IF NOT EXISTS plantstore_tokens_name ON plantstore_tokens (name)
  WHERE revoked_at_ms IS NULL;

CREATE TABLE IF NOT EXISTS plantstore_marks (
  name  text COLLATE "C" PRIMARY KEY,
  at_ms bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS plantstore_changes (
  last    bigint,
  length  int NOT NULL,
  lsn     bigint NOT NULL,
  at_us   bigint NOT NULL,
  entries text NOT NULL,
  kept    text
);

CREATE INDEX IF NOT EXISTS plantstore_changes_order ON plantstore_changes (last, lsn);

WITH mark AS (
  INSERT INTO plantstore_marks (name, at_ms)
  VALUES ('changes', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  ON CONFLICT (name) DO NOTHING RETURNING at_ms
)
INSERT INTO plantstore_changes (last, length, lsn, at_us, entries)
SELECT at_ms, 0, 0, at_ms, '[]' FROM mark;

CREATE TABLE IF NOT EXISTS plantstore_webhooks (
  name    text COLLATE "C" PRIMARY KEY,
  version text NOT NULL,
  record  text NOT NULL
);

UPDATE plantstore_version SET version = 1 WHERE id = 1 AND version < 1;
