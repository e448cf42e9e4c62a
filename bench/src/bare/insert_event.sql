INSERT INTO event (run, task, kind, at) VALUES (?1, ?2, 2, ?3)
