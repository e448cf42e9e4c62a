INSERT INTO run (workflow, state, created_at) VALUES (?1, 1, ?2)
