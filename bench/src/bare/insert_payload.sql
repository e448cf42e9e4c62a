INSERT INTO payload (task, input) VALUES (?1, ?2)
