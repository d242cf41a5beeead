# frozen_string_literal: true

require_relative 'run_file'

module PuppetX
  module Muster
    # The record of what this run looked up, found or not: when one of these keys changes, and only then, the node runs
    # again. It is written at each lookup, so that failed and pending runs leave it too. A catalog may look up thousands of
    # class parameters: a process writes each key once, and never reads the file.
    module Lookups
      VARIABLE = 'MUSTER_LOOKUPS_FILE'

      module_function

      def record(key)
        # One line is one key. The store has no key with a line break in it, so this can only be a mistake in the content.
        raise Puppet::Error, "the key #{key.inspect} cannot be looked up: it holds a line break" if key.match?(/[\r\n]/)

        @recorded ||= {}
        recorded = (@recorded[RunFile.path(VARIABLE)] ||= {})
        return if recorded[key]

        RunFile.append_line(VARIABLE, key)
        recorded[key] = true
      end
    end
  end
end
