//! What the handles of a pager and its regions share.

use std::ops::Deref;
use std::sync::Arc;

use outpage_engine::scope::Scope;

/// A pager, as long as anybody has it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

struct Inner {
    scope: Scope,
    limit: u64,
}

impl Shared {
    pub fn new(scope: Scope, limit: u64) -> Self {
        Self(Arc::new(Inner { scope, limit }))
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }
}

impl Deref for Shared {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.0.scope
    }
}
