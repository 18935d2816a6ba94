# What a person runs; .ci/run runs the same. ARGS="…" is passed on.
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin
TARGET := $(or $(CARGO_TARGET_DIR),target)
# With DPDK where its headers are (libdpdk-dev); DPDK= leaves it out.
DPDK ?= $(shell . scripts/common.sh; dpdk_features)

.PHONY: help build deb image demo demo-bgp demo-lab test bench lab fuzz attack sanitize guide man lint lint-rust lint-lab clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

build: ## quiver, quiverctl and the demo, optimised, in target/release
	@scripts/install-packages build
	cargo build --locked --release --workspace --bins $(DPDK)

deb: ## Debian packages in target/deb: quiver, quiver-dpdk, quiver-tester, quiver-lab (some minutes)
	@scripts/install-packages deb
	scripts/deb release

image: ## a container image of the router from the package in target/deb, in target/image
	@scripts/install-packages deb
	scripts/image $(TARGET)/deb

demo: ## two hosts, a router between them, real traffic through it (root for the full show)
	@scripts/install-packages test
	cargo build --locked --release -p quiver -p quiverctl -p quiver-tester -p quiver-testbed --bins $(DPDK)
	$(TARGET)/release/quiver-demo $(ARGS)
	@scripts/lab excerpt
	@cat docs/try/next.txt

demo-bgp: ## a full BGP table through a router, a link cut, beside the kernel (root; some minutes, ARGS=100000 one)
	@scripts/install-packages test
	cargo build --locked --release -p quiver -p quiverctl -p quiver-tester -p quiver-testbed --bins $(DPDK)
	$(TARGET)/release/quiver-demo-bgp $(ARGS)

demo-lab: ## a small campaign, quiver beside the kernel, and its report (root, under ten minutes after the build)
	@scripts/install-packages lab
	cargo build --locked --release -p quiver -p quiverctl -p quiver-tester $(DPDK)
	@rm -rf $(TARGET)/demo-lab
	PATH="$(abspath $(TARGET))/release:$$PATH" scripts/lab run run lab/campaigns/demo.yaml --out $(TARGET)/demo-lab/results
	scripts/lab run report $(TARGET)/demo-lab/results --out $(TARGET)/demo-lab/report

test: ## every test: beside the code, the scenarios in network namespaces (root), the lab's
	scripts/test $(ARGS)

bench: ## every bench, beside the last committed figures: make bench ARGS="--only graph"
	@scripts/install-packages test
	scripts/bench $(ARGS)

lab: ## the measurement lab: make lab ARGS="plan lab/campaigns/small.yaml"
	@scripts/install-packages lab
	@scripts/lab run $(ARGS)

fuzz: ## every fuzz target for a while
	@scripts/install-packages ci
	scripts/fuzz $(ARGS)

sanitize: ## crates with unsafe code, and the daemon, under AddressSanitizer and ThreadSanitizer (an hour)
	@scripts/install-packages ci
	scripts/sanitize $(ARGS)

attack: ## mutated frames, odd API messages and command lines against a router: make attack ARGS="--seconds 60"
	@scripts/install-packages test
	scripts/attack $(ARGS)

guide: ## the guide (docs/) as a site with a search, in target/guide
	@scripts/install-packages test
	scripts/guide

man: ## manual pages and shell completion of all programs, laid out as below /usr/share, in target/share
	@scripts/install-packages test
	cargo build --locked --release -p quiver -p quiverctl -p quiver-metrics -p quiver-snmp -p quiver-web -p quiver-tester $(DPDK)
	scripts/man $(TARGET)/release

lint: lint-rust lint-lab ## format, clippy without warnings, the workspace checked for aarch64, the lab's rules and types

lint-rust:
	cargo fmt --all --check
	for plugin in linked rust; do cargo fmt --check --manifest-path examples/plugins/$$plugin/Cargo.toml || exit 1; done
	cargo clippy --locked --workspace --all-targets $(DPDK) -- -D warnings
	cargo clippy --locked --workspace --test scenarios $(DPDK) -- -D warnings
	cargo clippy --locked --manifest-path examples/plugins/rust/Cargo.toml --target-dir $(TARGET) -- -D warnings
	scripts/check-aarch64 check

lint-lab:
	scripts/lab lint

clean: ## everything that was built
	cargo clean
