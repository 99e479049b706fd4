CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, day TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE lines (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL, quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL);
INSERT INTO customers VALUES (1, 'Ann', 'DE'), (2, 'Bob', 'FR'), (3, 'Eve', 'DE'), (4, 'Zoe', 'IT');
INSERT INTO products VALUES (1, 'bolt'), (2, 'nut'), (3, 'axle');
INSERT INTO orders VALUES (1, 1, '2023-12-31', 'paid'), (2, 2, '2024-01-01', 'paid'), (3, 3, '2024-02-10', 'cancelled'),
  (4, 1, '2024-03-05', 'open'), (5, 1, '2024-03-06', 'paid');
INSERT INTO lines VALUES (1, 1, 10, 5), (1, 2, 10, 5), (2, 3, 1, 3000), (3, 3, 5, 3000), (4, 2, 3, 4), (5, 1, 2, 6);
