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
