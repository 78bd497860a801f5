# SPDX-License-Identifier: Apache-2.0
# A thin front: Meson builds the C part, pip the Python package, tools/ hold the rest.
.PHONY: all build demo test soak bench format lint clean help

all: build

help:
	@echo 'make build   build/kajitori, and the package in .venv'
	@echo 'make demo    steer a real training, prune a real study (about 4 minutes)'
	@echo 'make test    all tests'
	@echo 'make soak    the long versions of the chaos, kill and fuzz tests'
	@echo 'make bench   the figures of bench/RESULTS.md, measured anew'
	@echo 'make format  lay out C and Python sources;  make lint  check them'

build:
	@tools/bootstrap build
	@tools/build

demo:
	@tools/bootstrap demo
	@tools/build
	@tools/demo

test:
	@tools/bootstrap test
	@tools/build
	@tools/run-tests

soak:
	@tools/bootstrap test
	@tools/build
	@tools/run-tests --soak

bench:
	@tools/bootstrap test
	@tools/build
	@tools/run-bench

format:
	@tools/lint --fix

lint:
	@tools/lint

clean:
	rm -rf build build-*
