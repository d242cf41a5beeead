# frozen_string_literal: true

require 'json'
require_relative 'run_file'

module PuppetX
  module Muster
    # Ends a run as pending. The agent reads the reason from the file and not from log messages. The error stops the
    # compilation, so that nothing is applied.
    module Pending
      VARIABLE = 'MUSTER_PENDING_FILE'
      MARK = 'MUSTER-PENDING'

      module_function

      def stop(need, message)
        RunFile.append_line(VARIABLE, JSON.generate(need))
        raise Puppet::ParseError, "#{MARK} #{message}"
      end
    end
  end
end
