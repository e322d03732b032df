//! What a service manager such as systemd is told (`Type=notify`); where there is none, nothing.

use sd_notify::NotifyState;

/// The variable that names the manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// The process listens: what waits for it may go on.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The process was asked to end, and does.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
