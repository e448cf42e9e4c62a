//! Statements that are sent together: one trip over the network, in the order in which they were added.

use deadpool_postgres::Object;
use futures_util::future::join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// A parameter of a statement.
pub(crate) type Parameter = Box<dyn ToSql + Sync + Send>;

/// Statements to be sent together.
///
/// All of them are on their way before the first is answered. After one that fails, the server refuses
/// the others of the same transaction, and a `COMMIT` behind it becomes a `ROLLBACK`.
#[derive(Default)]
pub(crate) struct StatementBatch {
    queued: Vec<(Statement, Vec<Parameter>)>,
}

/// The place of a statement in its batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchIndex(usize);

impl StatementBatch {
    /// Adds a statement behind all others. It was prepared on the connection that sends the batch.
    pub(crate) fn add_statement(
        &mut self,
        statement: Statement,
        parameters: Vec<Parameter>,
    ) -> BatchIndex {
        self.queued.push((statement, parameters));
        BatchIndex(self.queued.len() - 1)
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Sends everything. The first poll sends all statements, before anything is awaited.
    ///
    /// # Errors
    /// That of the first statement that failed.
    pub(crate) async fn send_all(
        self,
        client: &Object,
    ) -> Result<BatchRows, tokio_postgres::Error> {
        let queries = self.queued.iter().map(|(statement, parameters)| async move {
            let parameters: Vec<&(dyn ToSql + Sync)> =
                parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
            client.query(statement, &parameters).await
        });
        let answers = join_all(queries).await;
        Ok(BatchRows(answers.into_iter().collect::<Result<_, _>>()?))
    }
}

/// The rows that the statements of a batch have returned.
#[derive(Debug)]
pub(crate) struct BatchRows(Vec<Vec<Row>>);

impl BatchRows {
    /// Takes the rows of a statement out.
    pub(crate) fn take_rows(&mut self, statement: BatchIndex) -> Vec<Row> {
        std::mem::take(&mut self.0[statement.0])
    }
}
