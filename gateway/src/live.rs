//! The configuration that is in force: read anew by each request, exchanged whole by a reload.
//!
//! Only what [`crate::reload`] lists as reloadable may be read here after the start; the rest stays as
//! the gateway was started with, whatever the file says by now.

use std::sync::Arc;

use tandem_config::GatewayConfig;
use tokio::sync::watch;

use crate::reload::{Commit, Part};

/// Cheap to clone; all clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    config: watch::Sender<Arc<GatewayConfig>>,
}

impl Live {
    pub(crate) fn new(config: GatewayConfig) -> Self {
        Self {
            config: watch::Sender::new(Arc::new(config)),
        }
    }

    /// What is in force now.
    pub(crate) fn get(&self) -> Arc<GatewayConfig> {
        Arc::clone(&self.config.borrow())
    }
}

impl Part for Live {
    fn prepare(&self, _: &GatewayConfig, new: &GatewayConfig) -> Result<Option<Commit>, String> {
        let (config, new) = (self.config.clone(), Arc::new(new.clone()));
        Ok(Some(Box::pin(async move {
            config.send_replace(new);
        })))
    }
}
