CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, day TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE lines (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL, quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL);
INSERT INTO customers VALUES (7, 'Kim', 'NL'), (8, 'Lea', 'NL'), (9, 'Max', 'AT');
INSERT INTO products VALUES (5, 'wheel'), (6, 'gear');
INSERT INTO orders VALUES (1, 7, '2024-06-01', 'paid'), (2, 8, '2024-06-30', 'paid'), (3, 9, '2023-06-01', 'paid'), (4, 9, '2024-07-01', 'cancelled');
INSERT INTO lines VALUES (1, 5, 2, 100), (2, 5, 1, 100), (2, 6, 3, 100), (3, 6, 1, 50), (3, 6, 1, 50), (4, 5, 9, 9);
