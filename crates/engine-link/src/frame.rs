//! Messages on a Unix stream socket, and descriptors beside the first one.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use prost::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::{LinkError, broken};

/// A message's bytes, at most: a prompt of a million tokens and its pages.
const LONGEST: usize = 16 << 20;
/// Descriptors beside a message, at most.
pub(crate) const MOST_DESCRIPTORS: usize = 64;

/// Refuses a peer of another user.
pub(crate) fn check_peer(stream: &UnixStream) -> Result<(), LinkError> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(broken)?;
    let ours = rustix::process::geteuid();
    if peer.uid == ours || peer.uid.is_root() {
        Ok(())
    } else {
        Err(LinkError::Stranger(peer.uid.as_raw()))
    }
}

fn framed(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

pub(crate) fn send(stream: &mut impl Write, message: &impl Message) -> Result<(), LinkError> {
    stream.write_all(&framed(message)).map_err(broken)
}

/// The next message; `None` where the peer has ended.
pub(crate) fn receive<M: Message + Default>(
    stream: &mut impl Read,
) -> Result<Option<M>, LinkError> {
    let mut length = [0; 4];
    match stream.read(&mut length) {
        Ok(0) => return Ok(None),
        Ok(n) => stream.read_exact(&mut length[n..]).map_err(broken)?,
        Err(error) => return Err(broken(error)),
    }
    body(stream, u32::from_be_bytes(length)).map(Some)
}

fn body<M: Message + Default>(stream: &mut impl Read, length: u32) -> Result<M, LinkError> {
    let length = length as usize;
    if length > LONGEST {
        return Err(broken(format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).map_err(broken)?;
    M::decode(bytes.as_slice()).map_err(broken)
}

/// Sends a message with descriptors beside its length.
pub(crate) fn send_with(
    stream: &mut UnixStream,
    message: &impl Message,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), LinkError> {
    let bytes = framed(message);
    let (length, body) = bytes.split_at(4);
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(broken(format!("{} descriptors", descriptors.len())));
    }
    let parts = [IoSlice::new(length)];
    let sent = rustix::net::sendmsg(&*stream, &parts, &mut control, SendFlags::NOSIGNAL);
    if sent.map_err(broken)? != length.len() {
        return Err(broken("a length was cut"));
    }
    stream.write_all(body).map_err(broken)
}

/// Receives a message with the descriptors beside its length.
pub(crate) fn receive_with<M: Message + Default>(
    stream: &mut UnixStream,
) -> Result<(M, Vec<OwnedFd>), LinkError> {
    let mut length = [0; 4];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let received = rustix::net::recvmsg(
        &*stream,
        &mut parts,
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    );
    if received.map_err(broken)?.bytes != 4 {
        return Err(broken("it ended before it said hello"));
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((body(stream, u32::from_be_bytes(length))?, descriptors))
}
