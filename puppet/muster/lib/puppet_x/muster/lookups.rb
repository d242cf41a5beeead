# frozen_string_literal: true

require_relative 'run_file'

module PuppetX
  module Muster
    # Records the keys that this run looks up, found or not. The node runs again only when one of them changes. Each lookup is
    # written at once, so that failed and pending runs record it too. A catalog may look up thousands of class parameters: a
    # process writes each key once and never reads the file.
    module Lookups
      VARIABLE = 'MUSTER_LOOKUPS_FILE'

      module_function

      def record(key)
        # One key per line. No key in the store contains a line break, so this is a mistake in the content.
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
