//! Transactions that only read, all of it at one instant.

use crate::error::Error;
use crate::state::StoreState;
use deadpool_postgres::Object;
use futures_util::FutureExt;
use futures_util::future::join;

/// The way in which the statements of a snapshot find their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planning {
    /// By an index, as those of a request.
    Indexed,
    /// As the server thinks best: they go through whole tables.
    Scanning,
}

impl Planning {
    fn begin_statement(self) -> &'static str {
        match self {
            Planning::Indexed => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Planning::Scanning => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; \
                 SET LOCAL enable_mergejoin = on"
            }
        }
    }
}

/// Reads at one instant.
///
/// # Errors
/// Those of `read`, or of the connection.
pub(crate) async fn read_snapshot<T>(
    state: &StoreState,
    planning: Planning,
    read: impl AsyncFnOnce(&Object) -> Result<T, Error>,
) -> Result<T, Error> {
    let client = state.take_connection().await?;
    // Sent with the first statement that reads: the first poll sends it.
    let (begun, answer) =
        join(client.batch_execute(planning.begin_statement()), read(&client)).await;
    // Sent, and not awaited: the next statement of the connection comes behind it. A connection whose
    // transaction cannot be ended is closed, which does the same.
    if let Some(Err(_)) = client.batch_execute("ROLLBACK").now_or_never() {
        drop(Object::take(client));
    }
    begun?;
    answer
}
