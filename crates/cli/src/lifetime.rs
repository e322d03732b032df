//! When a process ends: with its parent, on signals, and with its terminal.

use std::{io, process, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;

/// Names the process that this one must not outlive, by its id.
pub(crate) const PARENT: &str = "TANDEM_PARENT";

/// Has the kernel kill this process when its parent's main thread ends, where the environment asks
/// for it. A parent that ended before this call is noticed too.
pub(crate) fn die_with_parent() -> Result<(), Failure> {
    let Some(parent) = std::env::var_os(PARENT) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::fault(format!("cannot tie this process to its parent: {error}"))
    })?;
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if now.as_deref().map(AsRef::as_ref) == Some(parent.as_os_str()) {
        Ok(())
    } else {
        Err(Failure::fault(format!(
            "parent process {} has ended",
            parent.display()
        )))
    }
}

/// The signals that ask for an end: SIGINT and SIGTERM, and SIGHUP where it asks for nothing else.
pub(crate) struct StopSignals {
    interrupt: SignalStream,
    terminate: SignalStream,
    hangup: Option<SignalStream>,
}

fn listen(kind: SignalKind) -> Result<SignalStream, Failure> {
    signal(kind).map_err(|e| Failure::fault(format!("signals: {e}")))
}

impl StopSignals {
    /// From now on they no longer end the process by themselves. Needs a tokio runtime.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            hangup: Some(listen(SignalKind::hangup())?),
            ..Self::listen_but_for_hangups()?
        })
    }

    /// The same without SIGHUP.
    pub(crate) fn listen_but_for_hangups() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: None,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let Self {
            interrupt,
            terminate,
            hangup,
        } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup => {}
        }
    }

    /// Ends the process without further ado at the next one.
    pub(crate) async fn exit_at_next(mut self) {
        self.next().await;
        tracing::warn!("a second signal: ending at once, open requests are cut off");
        process::exit(130);
    }
}

/// Does this at the first signal that asks for an end, on a thread of its own, and ends the process where it says so.
pub(crate) fn at_stop(last: impl FnOnce() -> bool + Send + 'static) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::fault)?;
    let mut signals = {
        let _within = runtime.enter();
        StopSignals::listen()?
    };
    let wait = move || {
        runtime.block_on(signals.next());
        if last() {
            process::exit(130);
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).map_err(Failure::fault)?;
    Ok(())
}

/// Hands each SIGHUP on, from now on. Several at once are one.
pub(crate) fn hand_on_hangups(to: mpsc::Sender<()>) -> Result<impl Future<Output = ()>, Failure> {
    let mut hangups = listen(SignalKind::hangup())?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            // Where one waits already, it stands for this one too.
            let _ = to.try_send(());
        }
    })
}

/// Resolves when the terminal on standard input is gone; never where there was none. The kernel
/// tells only the first process of a session, and `make` keeps that to itself.
pub(crate) async fn terminal_is_gone() {
    let (gone, seen) = oneshot::channel();
    let watch = move || {
        let stdin = io::stdin();
        while rustix::termios::isatty(&stdin) {
            let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
            let _ = poll(&mut fds, None);
            if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                let _ = gone.send(());
                return;
            }
        }
    };
    let watches = thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(watch)
        .is_ok();
    if !watches || seen.await.is_err() {
        std::future::pending().await
    }
}
