//! What shows before a test starts.

use tandem_loadtest::body::{Api, UsageAsked};
use tandem_loadtest::known_server::Behaviour;
use tandem_loadtest::{Harness, Target};

use crate::support::{MODEL, SCRIPT, Server, behaviour, target};

fn refusal(target: Target, model: Option<&str>) -> String {
    match Harness::start(target, Api::Chat, model.map(str::to_owned)) {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn nobody_there_is_told_with_what_to_look_at() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = refusal(target(&format!("http://{free}")), None);
    assert!(
        error.contains("no server at") && error.contains("--url"),
        "{error}"
    );
}

#[test]
fn a_wrong_key_is_told_with_what_to_give() {
    let server = Server::start(Behaviour {
        key: Some("right".to_owned()),
        ..behaviour(|_| SCRIPT)
    });
    for key in [None, Some("wrong".to_owned())] {
        let error = refusal(
            Target {
                key,
                ..server.target()
            },
            None,
        );
        assert!(
            error.contains("401: Incorrect API key") && error.contains("--key"),
            "{error}"
        );
    }
    let key = Some("right".to_owned());
    let harness = Harness::start(
        Target {
            key,
            ..server.target()
        },
        Api::Chat,
        None,
    )
    .unwrap();
    assert_eq!(harness.model(), MODEL);
}

#[test]
fn a_wrong_model_is_told_with_those_that_there_are() {
    let server = Server::answering(|_| SCRIPT);
    let error = refusal(server.target(), Some("other"));
    assert!(
        error.contains("no model \"other\": it has known"),
        "{error}"
    );
}

#[test]
fn of_several_models_one_has_to_be_named() {
    let server = Server::start(Behaviour {
        models: vec!["a".to_owned(), "b".to_owned()],
        ..behaviour(|_| SCRIPT)
    });
    let error = refusal(server.target(), None);
    assert!(error.contains("--model: it has a, b"), "{error}");
}

#[test]
fn usage_with_every_event_is_asked_for_where_it_is_taken() {
    for (chunk_usage, usage) in [(true, UsageAsked::Every), (false, UsageAsked::Last)] {
        let server = Server::start(Behaviour {
            chunk_usage,
            ..behaviour(|_| SCRIPT)
        });
        assert_eq!(server.harness().unwrap().usage(), usage);
    }
}
