//! The pages of the guide, whose examples are compiled and run as they stand there.

#[doc = include_str!("../../../docs/start.md")]
struct Start;

#[doc = include_str!("../../../docs/tasks.md")]
struct Tasks;

#[doc = include_str!("../../../docs/slots-and-waiting.md")]
struct SlotsAndWaiting;

#[doc = include_str!("../../../docs/waiting.md")]
struct Waiting;

#[doc = include_str!("../../../docs/limits.md")]
struct Limits;

#[doc = include_str!("../../../docs/workflows.md")]
struct Workflows;

#[doc = include_str!("../../../docs/promise.md")]
struct Promise;

#[doc = include_str!("../../../docs/operating.md")]
struct Operating;

#[doc = include_str!("../../../docs/testing.md")]
struct Testing;

#[doc = include_str!("../../../docs/metrics.md")]
struct Metrics;

#[doc = include_str!("../../../docs/retention.md")]
struct RetentionAndBackup;

#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

#[doc = include_str!("../../../docs/audit.md")]
struct Audit;

#[doc = include_str!("../../../docs/store.md")]
struct StoreOfYourOwn;

#[cfg(feature = "postgres")]
#[doc = include_str!("../../../docs/postgres.md")]
struct Postgres;
