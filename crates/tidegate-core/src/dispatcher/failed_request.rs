//! A request that the store did not take, or that may have been taken.

use super::words::{SubmitError, Ticket, Todo};
use super::{Dispatcher, InFlight, RETRY};
use crate::store::StoreError;
use std::sync::Arc;

/// After this many failures of one request, about five seconds, callers whose submit or operation is in it
/// are told that the outcome is unknown.
const CALLER_TRIES_MAX: u32 = 8;

impl InFlight {
    /// Whether the outcome is of interest to a worker that closes: the request reports something, a
    /// caller waits for it, or it may have claimed something.
    fn matters_at_close(&self) -> bool {
        let claims = self.request.claim.units > 0 || self.request.claim.ahead > 0;
        let is_awaited = !self.submits.is_empty() || !self.operations.is_empty();
        claims || is_awaited || !self.request.changes.is_empty()
    }
}

impl Dispatcher {
    /// The request in flight failed.
    pub(super) fn on_failed_request(&mut self, error: StoreError) {
        let Some(in_flight) = &mut self.in_flight else { return };
        self.readings.failed_requests += 1;
        self.asks_all = true;
        in_flight.failed = true;
        in_flight.failures += 1;
        let pause = in_flight.pause;
        in_flight.pause = (pause * 2).min(RETRY.1);
        let request = Arc::make_mut(&mut in_flight.request);
        let unknown = matches!(error, StoreError::Unknown(_)) || request.again;
        request.again = true;
        if !unknown {
            // Nothing was done: callers can be told so. What the worker has to report stays.
            (request.submits, request.operations, request.claim) = Default::default();
            in_flight.asks_all = false;
        }
        let is_hopeless = in_flight.failures >= CALLER_TRIES_MAX;
        if !unknown || is_hopeless {
            let submits = std::mem::take(&mut in_flight.submits);
            let operations = std::mem::take(&mut in_flight.operations);
            // An earlier try may have done it, whatever this one says.
            let unknown = unknown.then(|| StoreError::Unknown(error.shared_cause()));
            self.refuse_callers(submits, operations, unknown.as_ref().unwrap_or(&error));
        }
        if !matches!(error, StoreError::Unknown(_)) || is_hopeless {
            // Callers that have come since would wait for as long as the store fails. Nothing of
            // theirs was handed in.
            let submits = self.submits.drain(..).map(|(_, ticket)| ticket).collect();
            let operations = self.operations.drain(..).map(|(_, ticket)| ticket).collect();
            let undone = match &error {
                StoreError::Unknown(cause) => StoreError::Failed(cause.clone()),
                error => error.clone(),
            };
            self.refuse_callers(submits, operations, &undone);
        }
        self.todos.push(Todo::RetryAfter(pause, error));
        self.forget_failed_request();
    }

    /// A worker that closes does not repeat a request whose outcome is of no interest.
    pub(super) fn forget_failed_request(&mut self) {
        let is_forgotten = |request: &mut InFlight| request.failed && !request.matters_at_close();
        if self.closing {
            self.in_flight.take_if(is_forgotten);
        }
    }

    /// Answers callers with the error.
    fn refuse_callers(
        &mut self,
        submits: Vec<Ticket>,
        operations: Vec<Ticket>,
        error: &StoreError,
    ) {
        let failed = || SubmitError::Store(error.clone());
        let submits = submits.into_iter().map(|ticket| Todo::Submitted(ticket, Err(failed())));
        self.todos.extend(submits);
        let operations = operations.into_iter();
        self.todos.extend(operations.map(|ticket| Todo::OperationDone(ticket, Err(error.clone()))));
    }
}
