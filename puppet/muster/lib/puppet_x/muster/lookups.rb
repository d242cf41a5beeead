# frozen_string_literal: true

require_relative 'run_file'

module PuppetX
  module Muster
    # The record of what this run looked up, found or not: when one of these keys changes, and only then, the node runs
    # again. It is written at each lookup, so that failed and pending runs leave it too.
    module Lookups
      VARIABLE = 'MUSTER_LOOKUPS_FILE'

      module_function

      def record(key)
        # One line is one key. The store has no key with a line break in it, so this can only be a mistake in the content.
        raise Puppet::Error, "the key #{key.inspect} cannot be looked up: it holds a line break" if key.match?(/[\r\n]/)

        file = RunFile.path(VARIABLE)
        @recorded ||= {}
        return if @recorded[[file, key]]

        RunFile.append_line(VARIABLE, key) { |lines| lines.none?(key) }
        @recorded[[file, key]] = true
      end
    end
  end
end
