CREATE TABLE people (id INTEGER PRIMARY KEY, full_name TEXT, phones TEXT, born TEXT);
INSERT INTO people VALUES
  (1, 'Ann Lee', '+49 (731) 12-34; 0170/555', '1980-02-03'),
  (2, '  Juan  Carlos   de la Cruz ', '', '31.12.1999'),
  (5, 'Plato', NULL, 'long ago'),
  (9, 'Eve O''Hara', '1;1, 2', NULL);
