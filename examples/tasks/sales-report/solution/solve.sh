#!/bin/bash
cd /app
cat > best.sql << 'END'
WITH revenue AS (
  SELECT c.country, p.name AS product, sum(l.quantity * l.price_cents) AS cents
  FROM lines l JOIN orders o ON o.id = l.order_id JOIN customers c ON c.id = o.customer_id JOIN products p ON p.id = l.product_id
  WHERE o.status <> 'cancelled' GROUP BY c.country, p.name
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY country ORDER BY cents DESC, product) AS place FROM revenue
)
SELECT country, product, cents FROM ranked WHERE place = 1 ORDER BY country;
END
cat > idle.sql << 'END'
SELECT name FROM customers c WHERE NOT EXISTS (
  SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.status <> 'cancelled' AND o.day LIKE '2024-%'
) ORDER BY name;
END
cat > growth.sql << 'END'
WITH months AS (
  SELECT substr(o.day, 1, 7) AS month, sum(l.quantity * l.price_cents) AS cents
  FROM orders o JOIN lines l ON l.order_id = o.id WHERE o.status <> 'cancelled' GROUP BY 1
)
SELECT month, cents, cents - lag(cents) OVER (ORDER BY month) FROM months ORDER BY month;
END
