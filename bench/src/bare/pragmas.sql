-- FULL: an answered command survives the loss of power. Checkpoints are the writer's own business.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -65536;
PRAGMA busy_timeout = 5000;
