//! Any bytes from the other process: an error or something that makes sense, never a panic.

use prost::Message;
use tandem_wire::proto;

use super::*;
use crate::frame;

#[test]
fn frames_of_either_side() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut stream = bytes;
        while let Ok(Some(message)) = frame::receive::<proto::FromEngine>(&mut stream) {
            if let Ok(Heard::Event(said)) = read(message) {
                let again = read(event(said.clone()));
                // A number that is none is equal to nothing.
                let same = |heard: &Heard| matches!(heard, Heard::Event(e) if format!("{e:?}") == format!("{said:?}"));
                assert!(again.as_ref().is_ok_and(same), "{said:?}");
            }
        }
        let mut stream = bytes;
        while let Ok(Some(message)) = frame::receive::<proto::FromAgent>(&mut stream) {
            if let Ok(asked) = read_command(message) {
                let text = format!("{asked:?}");
                let again = read_command(command(asked));
                assert_eq!(again.map(|c| format!("{c:?}")), Ok(text));
            }
        }
    });
}

#[test]
fn a_length_that_promises_too_much_is_no_reason_to_take_memory() {
    let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 1];
    let error = frame::receive::<proto::FromAgent>(&mut bytes).unwrap_err();
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
    assert!(proto::FromAgent::decode(&[0xff][..]).is_err());
}
