-- The tables of index.sqlite (graph/store/sqlite.py) and of the call ledger, with the same columns.
CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value text COLLATE "C" NOT NULL);
CREATE TABLE documents (source text COLLATE "C" PRIMARY KEY, title text COLLATE "C" NOT NULL, text text COLLATE "C" NOT NULL,
    metadata text COLLATE "C" NOT NULL, hash text COLLATE "C" NOT NULL, extracted int8 NOT NULL DEFAULT 0);
CREATE TABLE passages (row int8 PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
    source text COLLATE "C" NOT NULL REFERENCES documents ON DELETE CASCADE, "order" int8 NOT NULL, "start" int8 NOT NULL,
    "end" int8 NOT NULL, reader text COLLATE "C" NOT NULL, dropped int8 NOT NULL);
CREATE INDEX passages_of_document ON passages (source);
CREATE TABLE propositions (row int8 PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, text text COLLATE "C" NOT NULL);
CREATE TABLE entities (row int8 PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, key text COLLATE "C" NOT NULL);
CREATE TABLE occurrences (row int8 PRIMARY KEY, proposition int8 NOT NULL REFERENCES propositions,
    passage int8 NOT NULL REFERENCES passages ON DELETE CASCADE, "start" int8 NOT NULL, "end" int8 NOT NULL);
CREATE INDEX occurrences_of_passage ON occurrences (passage);
CREATE INDEX occurrences_of_proposition ON occurrences (proposition);
CREATE TABLE mentions (occurrence int8 NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    entity int8 NOT NULL REFERENCES entities, spelling text COLLATE "C" NOT NULL, PRIMARY KEY (occurrence, entity));
CREATE INDEX mentions_of_entity ON mentions (entity);
CREATE TABLE topics (row int8 PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, text text COLLATE "C" NOT NULL);
CREATE TABLE occurrence_topics (occurrence int8 NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    topic int8 NOT NULL REFERENCES topics, PRIMARY KEY (occurrence, topic));
CREATE INDEX occurrences_of_topic ON occurrence_topics (topic);
CREATE TABLE facts (occurrence int8 NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    subject int8 NOT NULL REFERENCES entities, relation text COLLATE "C" NOT NULL, object int8 NOT NULL REFERENCES entities,
    PRIMARY KEY (occurrence, subject, relation, object));
CREATE INDEX facts_of_subject ON facts (subject);
CREATE INDEX facts_of_object ON facts (object);
CREATE TABLE quarantine (passage int8 PRIMARY KEY REFERENCES passages ON DELETE CASCADE, problem text COLLATE "C" NOT NULL,
    reply text COLLATE "C" NOT NULL, attempts int8 NOT NULL);
CREATE TABLE summaries (id text COLLATE "C" PRIMARY KEY, layer int8 NOT NULL, text text COLLATE "C" NOT NULL);
CREATE TABLE calls (key text COLLATE "C" PRIMARY KEY, model text COLLATE "C" NOT NULL, text text COLLATE "C" NOT NULL,
    prompt_tokens int8 NOT NULL, completion_tokens int8 NOT NULL, hash text COLLATE "C" NOT NULL, microseconds int8);
