-- Fills, indexes, joins and changes tables. SCALE is replaced by the number of rows.
-- Durability is off, because the disk must not be measured.
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -40000;
PRAGMA temp_store = MEMORY;

CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town INTEGER NOT NULL, notes TEXT);
CREATE TABLE towns (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE visits (person INTEGER NOT NULL, town INTEGER NOT NULL, day INTEGER NOT NULL);

WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < SCALE)
INSERT INTO people
SELECT n, printf('%08x', n * 2654435761 % 4294967296), n * 7919 % 997,
       substr(hex(n * 1103515245) || hex(n * 12345) || hex(n), 1, n % 60)
FROM number;
WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < 996)
INSERT INTO towns SELECT n, printf('town %d of %x', n, n * 40503 % 65536) FROM number;
INSERT INTO visits SELECT id, id * 31 % 997, id * 17 % 365 FROM people;
INSERT INTO visits SELECT id, id * 57 % 997, id * 13 % 365 FROM people WHERE id % 2;

CREATE INDEX people_by_name ON people (name);
CREATE INDEX people_by_town ON people (town, name);
CREATE INDEX visits_by_town ON visits (town, day);

SELECT towns.name, count(*), min(people.name), sum(length(people.notes))
FROM people JOIN towns ON people.town = towns.id
GROUP BY towns.id ORDER BY 2 DESC, 1 LIMIT 20;
SELECT towns.name, count(DISTINCT visits.person), max(visits.day)
FROM visits JOIN towns ON visits.town = towns.id JOIN people ON people.id = visits.person
WHERE people.town <> towns.id
GROUP BY towns.id ORDER BY 2 DESC, 1 LIMIT 20;
SELECT substr(name, 1, 2) AS begins, group_concat(id) FROM people
WHERE id % 50 = 0 GROUP BY begins ORDER BY length(group_concat(id)) DESC, begins LIMIT 5;

UPDATE people SET notes = notes || ' ' || name WHERE town % 3 = 0;
DELETE FROM visits WHERE day % 5 = 0;
SELECT count(*), sum(length(notes)) FROM people WHERE notes LIKE '%a7%';
SELECT a.name, b.name FROM people AS a JOIN people AS b ON b.town = a.town AND b.name > a.name
WHERE a.id % 5000 = 1 ORDER BY a.name, b.name LIMIT 30;
VACUUM;
PRAGMA integrity_check;
SELECT count(*) FROM visits;
