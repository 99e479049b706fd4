#!/bin/bash
cat > /app/migrate.sh << 'END'
#!/bin/bash
exec python3 - "$1" << 'PYTHON'
import re
import sqlite3
import sys

db = sqlite3.connect(sys.argv[1], isolation_level=None)
if db.execute("PRAGMA user_version").fetchone()[0] == 2:
    sys.exit(0)


def day(text):
    if found := re.fullmatch(r"(\d\d)\.(\d\d)\.(\d{4})", text or ""):
        return f"{found[3]}-{found[2]}-{found[1]}"
    return text if re.fullmatch(r"\d{4}-\d\d-\d\d", text or "") else None


db.execute("BEGIN IMMEDIATE")
db.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, last_name TEXT NOT NULL, born TEXT)")
db.execute(
    "CREATE TABLE phone (person_id INTEGER NOT NULL REFERENCES person(id) ON DELETE CASCADE, number TEXT NOT NULL,"
    " UNIQUE(person_id, number))"
)
for key, name, phones, born in db.execute("SELECT id, full_name, phones, born FROM people").fetchall():
    words = (name or "").split()
    if not words:
        sys.exit(f"{key}: no name")
    db.execute("INSERT INTO person VALUES (?, ?, ?, ?)", (key, " ".join(words[:-1]), words[-1], day(born)))
    for piece in re.split("[;,]", phones or ""):
        number = ("+" if piece.strip().startswith("+") else "") + re.sub(r"\D", "", piece)
        if number.strip("+"):
            db.execute("INSERT OR IGNORE INTO phone VALUES (?, ?)", (key, number))
db.execute("DROP TABLE people")
db.execute("PRAGMA user_version = 2")
db.execute("COMMIT")
PYTHON
END
chmod +x /app/migrate.sh
/app/migrate.sh /app/people.db
