INSERT INTO task (run, step, state, due, attempt, fence) VALUES (?1, 0, 0, ?2, 0, 0)
