//! Everything found wrong with a task, to be said at once.

use proc_macro2::TokenStream;
use std::fmt::Display;
use syn::Error;

/// None, so far.
#[derive(Default)]
pub(crate) struct Mistakes(Option<Error>);

impl Mistakes {
    /// One more.
    pub(crate) fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Keeps the mistake, if it is one.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Each as an error of the compiler.
    pub(crate) fn into_tokens(self) -> Option<TokenStream> {
        self.0.map(|error| error.to_compile_error())
    }
}

/// A mistake that stretches over these tokens.
pub(crate) fn at(tokens: &impl quote::ToTokens, message: impl Display) -> Error {
    Error::new_spanned(tokens, message)
}
