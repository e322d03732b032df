//! How the control plane's packets travel: quinn's transport, and the sockets below it.
//!
//! A decode step of a large batch is hundreds of small messages at once. They share a fast network with the
//! KV pages and are nothing beside them, so they are not paced, and a burst that found a busy reader is no
//! sign of a congested network: what the kernel has no room for comes a loss timeout late, in every stream
//! of the worker, and a window that shrinks for it makes the next step late too.

use std::any::Any;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn::{AckFrequencyConfig, TransportConfig};
use quinn_proto::RttEstimator;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, socket_recv_buffer_size,
};

use crate::ControlOptions;

/// Room for packets in the kernel, in bytes. A packet of one token takes up to a KiB of it.
const SOCKET_BUFFER: usize = 4 << 20;
/// What may always be in flight, in bytes: some thousand tokens.
const LEAST_WINDOW: u64 = 256 << 10;
/// Packets that are acknowledged together, and how long the first of them may wait for the others.
const ACK_AFTER: u32 = 10;
const ACK_DELAY: Duration = Duration::from_millis(5);

/// Of all connections of the control plane.
pub(crate) fn config(options: ControlOptions) -> Arc<TransportConfig> {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(ACK_AFTER.into())
        .max_ack_delay(Some(ACK_DELAY));
    let mut transport = TransportConfig::default();
    transport
        .keep_alive_interval(Some(options.keep_alive))
        .max_idle_timeout(options.idle_timeout.try_into().ok())
        .max_concurrent_bidi_streams(options.max_streams.into())
        .max_concurrent_uni_streams(0u32.into())
        .ack_frequency_config(Some(acks))
        .congestion_controller_factory(Arc::new(Roomy::default()));
    Arc::new(transport)
}

/// Makes the kernel's buffers large. It may allow less than is asked for, which is said once.
pub(crate) fn widen(socket: &UdpSocket) -> std::io::Result<()> {
    set_socket_recv_buffer_size(socket, SOCKET_BUFFER)?;
    set_socket_send_buffer_size(socket, SOCKET_BUFFER)?;
    // Linux tells twice what it holds in packets.
    let got = socket_recv_buffer_size(socket)? / 2;
    if got < SOCKET_BUFFER {
        tracing::info!(
            bytes = got,
            wanted = SOCKET_BUFFER,
            "the system limits receive buffers (net.core.rmem_max): many streams of one worker may stutter"
        );
    }
    Ok(())
}

/// Makes [`Floored`] controllers.
#[derive(Default)]
struct Roomy(Arc<CubicConfig>);

impl ControllerFactory for Roomy {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Floored(Arc::clone(&self.0).build(now, mtu)))
    }
}

/// A congestion controller whose window is never below [`LEAST_WINDOW`].
struct Floored(Box<dyn Controller>);

impl Controller for Floored {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.0.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.0
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.0
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.0.window().max(LEAST_WINDOW)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self(self.0.clone_box()))
    }

    fn initial_window(&self) -> u64 {
        self.0.initial_window().max(LEAST_WINDOW)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;

    fn controller() -> Box<dyn Controller> {
        Arc::new(Roomy::default()).build(Instant::now(), MTU)
    }

    #[test]
    fn a_step_of_a_large_batch_goes_out_at_once_on_a_new_connection() {
        assert_eq!(controller().window(), LEAST_WINDOW);
        assert_eq!(controller().initial_window(), LEAST_WINDOW);
    }

    #[test]
    fn losses_do_not_close_the_window() {
        let mut controller = controller();
        let now = Instant::now();
        for second in 1..10 {
            let now = now + Duration::from_secs(second);
            controller.on_congestion_event(now, now, true, LEAST_WINDOW);
            assert_eq!(controller.window(), LEAST_WINDOW);
        }
        assert_eq!(controller.clone_box().window(), LEAST_WINDOW);
    }

    #[test]
    fn sockets_hold_as_much_as_the_system_allows() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        widen(&socket).unwrap();
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let most: usize = most.trim().parse().unwrap();
        assert_eq!(
            socket_recv_buffer_size(&socket).unwrap(),
            2 * SOCKET_BUFFER.min(most)
        );
    }
}
