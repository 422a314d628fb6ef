# Thin on purpose: what these do is in xtask/.
.PHONY: help run test bench kills programs fuzz doc dist install

PREFIX ?= /usr/local

help:
	@echo 'make run    set up, build, and show Baton beside the kernel'
	@echo 'make test   set up, then everything that proves it right'
	@echo 'make bench  every benchmark, into bench/runs/'
	@echo 'make kills  every process killed at 100 random moments under load'
	@echo 'make programs  real programs under baton run, whole loads, restless connections'
	@echo 'make fuzz   every fuzz target, ten minutes each (SECONDS_EACH=600)'
	@echo 'make doc    the documentation of every crate'
	@echo 'make dist   tarballs and a Debian package, into target/dist/'
	@echo 'make install  DESTDIR= PREFIX=/usr/local: the same files into the system'
	@echo 'More: cargo xtask help'

run test bench kills programs doc dist:
	@sh xtask/bootstrap.sh
	@cargo xtask $@

fuzz:
	@sh xtask/bootstrap.sh
	@cargo xtask fuzz --seconds $(or $(SECONDS_EACH),600)

install:
	@sh xtask/bootstrap.sh
	@cargo xtask install --prefix '$(PREFIX)' $(if $(DESTDIR),--destdir '$(DESTDIR)')
