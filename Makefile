# `make` alone says what there is. Arguments for `tandem up` go into ARGS:
#   make up ARGS="--decode 4 --provider shm"

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help up test check bench model fmt clean

# For the machine it runs on, beside the portable build and not over it.
NATIVE := RUSTFLAGS="-C target-cpu=native" CARGO_TARGET_DIR=target/native

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## start a gateway, one prefill and two decode workers on 127.0.0.1:8080
	@scripts/prepare.sh
	@scripts/fetch-model > /dev/null
	@$(NATIVE) cargo build --release --locked --package tandem-cli
	@exec scripts/up $(ARGS)

test: ## run all tests
	@scripts/prepare.sh
	@scripts/test

check: ## formatting, lints, licences, the dependency rule, documentation
	@scripts/prepare.sh build-essential
	@scripts/check

bench: ## measure transfers, choices of workers, disaggregation and the relay
	@scripts/prepare.sh
	@scripts/fetch-model > /dev/null
	@$(NATIVE) scripts/bench $(ARGS)

model: ## fetch the model that everything here runs on
	@scripts/fetch-model

fmt: ## format all code
	@cargo fmt --all

clean: ## remove what was built; models and .tandem/ stay
	@cargo clean
