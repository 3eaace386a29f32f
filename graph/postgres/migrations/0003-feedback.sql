-- Feedback on answers (graph/feedback.py), column for column as in feedback.sqlite.
CREATE TABLE feedback (row int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
    "user" text COLLATE "C" NOT NULL, at text COLLATE "C" NOT NULL, consent int8 NOT NULL, kind text COLLATE "C" NOT NULL,
    question text COLLATE "C" NOT NULL, said text COLLATE "C" NOT NULL);
CREATE INDEX feedback_of_user ON feedback ("user");
